// The behaviour of the page: selection of connection and stream, zoom, tooltips, legend and ladder.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const id = name => document.getElementById(name), root = document.documentElement;
  const make = (tag, className, text) => {
    const e = document.createElement(tag);
    if (className) e.className = className;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const MOST_RUNGS = 400;
  const charts = id('charts'), tip = id('tip'), canvas = make('canvas');
  charts.append(canvas);
  root.dataset.theme = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
  const hidden = new Set();
  let chart = null, connection = null, drag = null, pending = false;

  const redraw = () => {
    if (pending) return;
    pending = true;
    requestAnimationFrame(() => { pending = false; paint(); });
  };
  function paint() {
    chart.draw();
    if (drag && !drag.move) {
      const g = chart.g, x0 = Math.min(drag.x, drag.to), w = Math.abs(drag.x - drag.to);
      g.fillStyle = colourOf('--sent'); g.globalAlpha = 0.15; g.fillRect(x0, MARGIN.top, w, chart.panels.total - MARGIN.top - MARGIN.bottom); g.globalAlpha = 1;
    }
    ladder();
    root.dataset.drawn = JSON.stringify(chart.drawn);
    root.dataset.range = `${Math.round(chart.t0)} ${Math.round(chart.t1)}`;
  }

  function legend() {
    const used = new Set();
    const e = chart.stream.events;
    for (let i = 0; i < e.k.length; i++) for (const layer of layersOf(e.k[i], e.f[i])) used.add(layer);
    id('legend').replaceChildren(...LAYERS.filter(l => used.has(l.id)).map(l => {
      const button = make('button', hidden.has(l.id) ? 'off' : ''), sample = make('canvas');
      sample.width = sample.height = 28;
      const g = sample.getContext('2d');
      g.scale(2, 2); g.fillStyle = g.strokeStyle = colourOf(l.colour); g.lineWidth = 1.8;
      mark(g, l.shape, 7, 7, l.shape === 'dot' ? 5.5 : 4.4);
      button.append(sample, document.createTextNode(l.text));
      button.title = 'show or hide';
      button.onclick = () => { hidden.has(l.id) ? hidden.delete(l.id) : hidden.add(l.id); legend(); redraw(); };
      return button;
    }));
  }

  function rung(row) {
    const [t, toA, kind, lost, text, leftOut] = row, out = [];
    if (leftOut) out.push(make('div', 'more', `${number(leftOut)} ${leftOut === 1 ? 'row' : 'rows'} left out`));
    const line = make('div', `rung ${toA ? 'a' : 'b'} k-${data.kinds[kind].replace(' ', '-')}${lost ? ' gone' : ''}`), lane = make('div', 'lane');
    line.setAttribute('role', 'row');
    lane.append(make('span', '', (lost ? 'lost: ' : '') + text));
    line.append(make('time', '', exactTime(t, connection.length)), lane, make('div'));
    out.push(line);
    return out;
  }
  let shownLadder = '';
  function ladder() {
    const rows = connection.ladder, a = from(rows, chart.t0, r => r[0]), b = from(rows, chart.t1, r => r[0]);
    const key = `${connection.number} ${a} ${b}`;
    if (key === shownLadder) return;
    shownLadder = key;
    const head = make('div', 'rung ends'), ends = make('div');
    ends.append(make('span', '', connection.a), make('span', '', connection.b));
    head.append(make('time', '', 'time'), ends, make('div'));
    const some = rows.slice(a, Math.min(b, a + MOST_RUNGS));
    id('ladder').replaceChildren(head, ...some.flatMap(rung));
    if (b - a > MOST_RUNGS) id('ladder').append(make('div', 'more', `${number(b - a - MOST_RUNGS)} more in this range: zoom in`));
    id('ladderhint').textContent = b > a ? 'Each row is a run of packets of one message, in the range of time that the graphs show.' : 'Nothing happened in the range of time that the graphs show.';
    root.dataset.rungs = String(some.length);
  }

  function choose(c, s) {
    connection = data.connections[c];
    const stream = connection.streams[s], before = chart && chart.connection === connection ? [chart.t0, chart.t1] : null;
    chart = new Chart(canvas, stream, connection.length, data.opcodes, data.kinds);
    chart.connection = connection;
    chart.hidden = hidden;
    if (before) chart.show(...before);
    root.dataset.stream = `${c} ${s}`;
    legend();
    redraw();
  }
  const option = (value, text) => { const o = make('option', '', text); o.value = value; return o; };
  function streams(c) {
    const all = data.connections[c].streams;
    id('stream').replaceChildren(...all.map((s, i) => option(i, `${s.from} (${number(s.counts.packets)} packets)`)).filter((_, i) => all[i].events.of));
    const busy = all[0].counts.packets >= all[1].counts.packets ? 0 : 1;
    id('stream').value = String(all[busy].events.of ? busy : 1 - busy);
  }

  function hover(event) {
    const box = canvas.getBoundingClientRect(), found = drag ? null : chart.at(event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !found;
    if (!found) return;
    tip.replaceChildren(make('b', '', found[0]), ...found[1].flatMap((l, i) => i ? [make('br'), make('span', '', l)] : [make('span', '', l)]));
    const left = event.clientX + 16 + tip.offsetWidth > innerWidth ? event.clientX - 16 - tip.offsetWidth : event.clientX + 16;
    const top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8);
    tip.style.left = Math.max(4, left) + 'px'; tip.style.top = Math.max(4, top) + 'px';
  }
  const within = x => Math.min(Math.max(x, MARGIN.left), chart.width - MARGIN.right);
  canvas.addEventListener('pointerdown', e => {
    if (e.button !== 0) return;
    const x = within(e.offsetX);
    drag = {x, to: x, move: e.shiftKey, t0: chart.t0, t1: chart.t1};
    canvas.setPointerCapture(e.pointerId);
    tip.hidden = true;
  });
  canvas.addEventListener('pointermove', e => {
    if (!drag) return hover(e);
    drag.to = within(e.offsetX);
    if (drag.move) {
      const shift = (drag.x - drag.to) / (chart.width - MARGIN.left - MARGIN.right) * (drag.t1 - drag.t0);
      chart.show(drag.t0 + shift, drag.t1 + shift);
    }
    redraw();
  });
  canvas.addEventListener('pointerup', () => {
    const d = drag;
    drag = null;
    if (d && !d.move && Math.abs(d.to - d.x) > 5) chart.show(chart.timeAt(Math.min(d.x, d.to)), chart.timeAt(Math.max(d.x, d.to)));
    redraw();
  });
  canvas.addEventListener('pointercancel', () => { drag = null; redraw(); });
  canvas.addEventListener('pointerleave', () => { tip.hidden = true; });
  canvas.addEventListener('dblclick', () => { chart.all(); redraw(); });
  canvas.addEventListener('wheel', e => {
    e.preventDefault();
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      const shift = e.deltaX / 800 * (chart.t1 - chart.t0);
      chart.show(chart.t0 + shift, chart.t1 + shift);
    } else {
      chart.zoom(Math.exp(e.deltaY / 500), chart.timeAt(within(e.offsetX)));
    }
    redraw();
  }, {passive: false});

  const middle = () => (chart.t0 + chart.t1) / 2, step = () => (chart.t1 - chart.t0) / 5;
  const actions = {
    '+': () => chart.zoom(0.5, middle()), '=': () => chart.zoom(0.5, middle()), '-': () => chart.zoom(2, middle()), '0': () => chart.all(),
    ArrowLeft: () => chart.show(chart.t0 - step(), chart.t1 - step()), ArrowRight: () => chart.show(chart.t0 + step(), chart.t1 + step())};
  charts.addEventListener('keydown', e => {
    if (!actions[e.key] || e.ctrlKey || e.metaKey) return;
    e.preventDefault(); actions[e.key](); redraw();
  });
  id('in').onclick = () => { actions['+'](); redraw(); };
  id('out').onclick = () => { actions['-'](); redraw(); };
  id('all').onclick = () => { chart.all(); redraw(); };
  id('theme').onclick = () => { root.dataset.theme = root.dataset.theme === 'dark' ? 'light' : 'dark'; legend(); redraw(); };
  id('connection').onchange = () => { streams(+id('connection').value); choose(+id('connection').value, +id('stream').value); };
  id('stream').onchange = () => choose(+id('connection').value, +id('stream').value);
  addEventListener('resize', redraw);

  if (!data.connections.length) return;
  id('connection').replaceChildren(...data.connections.map((c, i) => option(i, `${c.number}: ${c.a} \u2194 ${c.b}, ${c.service}`)));
  id('app').hidden = false;
  streams(0);
  // The fragment of a link may select a view: #connection=1&stream=1&from=1200&to=5600&theme=dark. `from` and `to` are nanoseconds.
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has('theme')) root.dataset.theme = wanted.get('theme') === 'dark' ? 'dark' : 'light';
  if (data.connections[+wanted.get('connection') - 1]) { id('connection').value = String(+wanted.get('connection') - 1); streams(+id('connection').value); }
  if (wanted.has('stream') && [...id('stream').options].some(o => o.value === wanted.get('stream'))) id('stream').value = wanted.get('stream');
  choose(+id('connection').value, +id('stream').value);
  if (wanted.has('from') && +wanted.get('to') > +wanted.get('from')) chart.show(+wanted.get('from'), +wanted.get('to'));
  paint();
})();
