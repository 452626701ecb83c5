'use strict';
// Draws the graphs: panels with a common time axis on one canvas. page.js handles selection and input.
const LAYERS = [  // name, text of the legend, colour, shape
  {id: 'acked', text: 'acknowledged', colour: '--acked', shape: 'step'},
  {id: 'sent', text: 'sent', colour: '--sent', shape: 'dot'},
  {id: 'response', text: 'response', colour: '--response', shape: 'dot'},
  {id: 'resent', text: 'sent again', colour: '--resent', shape: 'up'},
  {id: 'late', text: 'overtaken', colour: '--late', shape: 'square'},
  {id: 'lost', text: 'lost', colour: '--lost', shape: 'cross'},
  {id: 'nak', text: 'NAK', colour: '--nak', shape: 'down'},
  {id: 'marked', text: 'congestion mark', colour: '--marked', shape: 'ring'}];
const LAYER_OF_KIND = ['sent', 'resent', 'late', 'lost', 'response', 'response', 'acked', 'nak', 'nak', 'nak', 'marked'];
const LOST = 1, MARKED = 2;
const MARGIN = {left: 92, right: 18, top: 30, gap: 40, bottom: 34};

const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const wirePsn = psn => ((psn % 16777216) + 16777216) % 16777216;
const number = n => n.toLocaleString('en-US');

function scaledBy(value, units) {
  for (const [size, name] of units) if (Math.abs(value) >= size) return [value / size, name];
  const [size, name] = units[units.length - 1];
  return [value / size, name];
}
const digits = v => (v === 0 ? '0' : v.toFixed(Math.abs(v) < 10 ? 2 : Math.abs(v) < 100 ? 1 : 0));
function duration(ns) {
  if (ns === 0) return '0';
  const [v, unit] = scaledBy(ns, [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']]);
  return (unit === 'ns' ? v.toFixed(0) : digits(v)) + ' ' + unit;
}
// Returns a time of the ladder as text. `length` is the duration of the connection. All times of a connection have the same unit and the
// same number of digits.
function exactTime(ns, length) {
  const [size, unit, places] = length >= 1e10 ? [1e9, 's', 6] : length >= 1e6 ? [1e6, 'ms', 4] : [1e3, 'us', 2];
  return `${(ns / size).toFixed(places)} ${unit}`;
}
const bytesText = n => n < 1000 ? `${n} bytes` : scaledBy(n, [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB']]).map((v, i) => i ? v : digits(v)).join(' ');
const rateText = n => scaledBy(n, [[1e9, 'Gb/s'], [1e6, 'Mb/s'], [1e3, 'kb/s'], [1, 'b/s']]).map((v, i) => i ? v : digits(v)).join(' ');

// Returns the positions of the grid lines between low and high. The step is 1, 2 or 5 times a power of ten.
function ticks(low, high, most, whole) {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0)) return [low];
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  let step = [1, 2, 5, 10].map(f => f * power).find(s => s >= raw * 0.999);
  if (whole) step = Math.max(1, Math.round(step));
  const out = [];
  for (let i = Math.ceil(low / step), n = 0; i * step <= high + step * 1e-6 && n < 1000; i++, n++) out.push(i * step);
  return out;
}
// Returns a label per time. All labels except 0 have the same unit, and enough digits to distinguish adjacent times.
function timeLabels(list) {
  const span = Math.max(...list.map(Math.abs), 1), step = list.length > 1 ? list[1] - list[0] : span;
  const [size, unit] = [[1e9, 's'], [1e6, 'ms'], [1e3, 'us'], [1, 'ns']].find(([s]) => span >= s);
  const places = Math.min(9, Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)));
  return list.map(t => t === 0 ? '0' : `${(t / size).toFixed(places)} ${unit}`);
}

function mark(g, shape, x, y, r) {
  g.beginPath();
  if (shape === 'dot') g.arc(x, y, r * 0.62, 0, 7), g.fill();
  else if (shape === 'square') g.rect(x - r * 0.7, y - r * 0.7, r * 1.4, r * 1.4), g.fill();
  else if (shape === 'up') g.moveTo(x, y - r), g.lineTo(x + r, y + r * 0.8), g.lineTo(x - r, y + r * 0.8), g.fill();
  else if (shape === 'down') g.moveTo(x, y + r), g.lineTo(x + r, y - r * 0.8), g.lineTo(x - r, y - r * 0.8), g.fill();
  else if (shape === 'ring') g.arc(x, y, r * 1.1, 0, 7), g.stroke();
  else if (shape === 'cross') g.moveTo(x - r, y - r), g.lineTo(x + r, y + r), g.moveTo(x + r, y - r), g.lineTo(x - r, y + r), g.stroke();
  else if (shape === 'step') g.moveTo(x - r, y + r * 0.6), g.lineTo(x, y + r * 0.6), g.lineTo(x, y - r * 0.6), g.lineTo(x + r, y - r * 0.6), g.stroke();
}

const layersOf = (kind, flags) => {
  const out = [LAYER_OF_KIND[kind]];
  if ((flags & LOST) && out[0] !== 'lost') out.push('lost');
  if ((flags & MARKED) && out[0] !== 'marked') out.push('marked');
  return out;
};

// Returns the index of the first item of a sorted list whose time is not before t.
function from(list, t, time) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (time(list[middle]) < t) low = middle + 1; else high = middle;
  }
  return low;
}

// Returns the panels of a stream. If the stream has no round trips or no packets in flight, omits the panel for them.
function panelsOf(stream) {
  const panels = [{id: 'psn', title: 'Packets: PSN by time', height: 330}];
  if (stream.rtt.length) panels.push({id: 'rtt', title: 'Round trip', height: 96, colour: '--rtt', label: duration});
  if (stream.in_flight.length) panels.push({id: 'flight', title: 'In flight: packets without an ACK', height: 96, colour: '--flight', label: v => number(Math.round(v)), whole: true});
  panels.push({id: 'good', title: 'Goodput: payload that arrived', height: 96, colour: '--good', label: rateText});
  let y = MARGIN.top;
  for (const p of panels) p.y = y, y += p.height + MARGIN.gap;
  panels.total = y - MARGIN.gap + MARGIN.bottom;
  return panels;
}

class Chart {
  constructor(canvas, stream, length, opcodes, kinds) {
    Object.assign(this, {canvas, stream, length: Math.max(length, 1), opcodes, kinds, hidden: new Set(), hits: []});
    this.panels = panelsOf(stream);
    canvas.style.height = this.panels.total + 'px';
    this.t0 = -0.01 * this.length; this.t1 = 1.01 * this.length;
    this.index = stream.events.t.map((_, i) => i);
  }
  x(t) { return MARGIN.left + (t - this.t0) / (this.t1 - this.t0) * (this.width - MARGIN.left - MARGIN.right); }
  timeAt(x) { return this.t0 + (x - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right) * (this.t1 - this.t0); }
  show(t0, t1) {
    const least = 20;  // ns
    if (t1 - t0 < least) { const c = (t0 + t1) / 2; t0 = c - least / 2; t1 = c + least / 2; }
    const whole = 1.02 * this.length;
    if (t1 - t0 >= whole) { t0 = -0.01 * this.length; t1 = 1.01 * this.length; }
    const shift = Math.max(0, -0.01 * this.length - t0) - Math.max(0, t1 - 1.01 * this.length);
    this.t0 = t0 + shift; this.t1 = t1 + shift;
  }
  all() { this.show(-this.length, 2 * this.length); }
  zoom(factor, centre) { this.show(centre - (centre - this.t0) * factor, centre + (this.t1 - centre) * factor); }

  draw() {
    const ratio = window.devicePixelRatio || 1, g = this.canvas.getContext('2d');
    this.width = this.canvas.clientWidth || 900;
    this.canvas.width = Math.round(this.width * ratio); this.canvas.height = Math.round(this.panels.total * ratio);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.fillStyle = colourOf('--paper'); g.fillRect(0, 0, this.width, this.panels.total);
    this.g = g; this.hits = []; this.drawn = {};
    const times = ticks(Math.max(this.t0, 0), this.t1, Math.max(2, Math.floor((this.width - MARGIN.left) / 120)));
    for (const p of this.panels) {
      const inside = this['range_' + p.id](p);
      this.frame(p, times, inside);
      g.save(); g.beginPath(); g.rect(MARGIN.left - 1, p.y - 4, this.width - MARGIN.left - MARGIN.right + 2, p.height + 8); g.clip();
      this['draw_' + p.id](p);
      g.restore();
    }
    this.timeAxis(times);
  }

  y(p, v) { return p.y + p.height - (v - p.low) / (p.high - p.low) * p.height; }
  frame(p, times, values) {
    const g = this.g, right = this.width - MARGIN.right;
    g.fillStyle = colourOf('--ink'); g.font = '600 13px system-ui,"DejaVu Sans",sans-serif'; g.textAlign = 'left'; g.textBaseline = 'alphabetic';
    g.fillText(p.title, MARGIN.left, p.y - 11);
    g.strokeStyle = colourOf('--grid'); g.lineWidth = 1; g.beginPath();
    for (const t of times) { const x = Math.round(this.x(t)) + 0.5; g.moveTo(x, p.y); g.lineTo(x, p.y + p.height); }
    for (const v of values) { const y = Math.round(this.y(p, v)) + 0.5; g.moveTo(MARGIN.left, y); g.lineTo(right, y); }
    g.stroke();
    g.strokeStyle = colourOf('--line'); g.strokeRect(MARGIN.left + 0.5, p.y + 0.5, right - MARGIN.left - 1, p.height - 1);
    g.fillStyle = colourOf('--soft'); g.font = '12px system-ui,"DejaVu Sans",sans-serif'; g.textAlign = 'right'; g.textBaseline = 'middle';
    for (const v of values) g.fillText(p.label ? p.label(v) : String(wirePsn(v)), MARGIN.left - 8, this.y(p, v));
  }
  timeAxis(times) {
    const g = this.g, last = this.panels[this.panels.length - 1], y = last.y + last.height + 10;
    g.fillStyle = colourOf('--soft'); g.font = '12px system-ui,"DejaVu Sans",sans-serif'; g.textAlign = 'center'; g.textBaseline = 'top';
    timeLabels(times).forEach((text, i) => {
      const half = g.measureText(text).width / 2, x = this.x(times[i]);
      if (x - half > 4 && x + half < this.width - 2) g.fillText(text, x, y);
    });
  }
  // Sets the range of a panel to low..high and returns the values to label.
  range(p, low, high, count) {
    if (!(high > low)) high = low + 1;
    const step = ticks(low, high, count, p.whole);
    p.low = low; p.high = high;
    return step;
  }
  upward(p, high) {
    const list = this.range(p, 0, (high || 1) * 1.12, 4);
    return list;
  }

  visible() {
    const t = this.stream.events.t, pixels = (this.t1 - this.t0) * 0.01;
    return [from(t, this.t0 - pixels, v => v), from(t, this.t1 + pixels, v => v)];
  }
  range_psn(p) {
    const e = this.stream.events, [a, b] = this.visible();
    let low = Infinity, high = -Infinity;
    for (let i = a; i < b; i++) { low = Math.min(low, e.p[i]); high = Math.max(high, e.p[i]); }
    if (low > high) { low = 0; high = 1; }
    const room = Math.max(1, (high - low) * 0.04);
    p.whole = true;
    return this.range(p, low - room, high + room, 7);
  }
  draw_psn(p) {
    const e = this.stream.events, g = this.g, [a, b] = this.visible();
    if (!this.hidden.has('acked')) this.staircase(p);
    const r = b - a > 3000 ? 3 : b - a > 300 ? 3.6 : 4.6;
    const byLayer = {};
    for (let i = a; i < b; i++) for (const layer of layersOf(e.k[i], e.f[i])) (byLayer[layer] ||= []).push(i);
    for (const layer of LAYERS) {
      if (this.hidden.has(layer.id) || !byLayer[layer.id]) continue;
      g.fillStyle = g.strokeStyle = colourOf(layer.colour); g.lineWidth = layer.shape === 'cross' ? 2 : 1.6;
      for (const i of byLayer[layer.id]) {
        const x = this.x(e.t[i]), y = this.y(p, e.p[i]);
        mark(g, layer.shape === 'step' ? 'dot' : layer.shape, x, y, layer.shape === 'step' ? r * 0.7 : layer.shape === 'dot' ? r : Math.max(r, 4));
        this.hits.push([x, y, i]);
      }
      this.drawn[layer.id] = byLayer[layer.id].length;
    }
  }
  staircase(p) {
    const list = this.stream.acked, g = this.g;
    const first = Math.max(0, from(list, this.t0, v => v[0]) - 1), last = Math.min(list.length, from(list, this.t1, v => v[0]) + 1);
    if (last <= first) return;
    g.strokeStyle = colourOf('--acked'); g.lineWidth = 1.5; g.beginPath(); g.moveTo(this.x(list[first][0]), this.y(p, list[first][1]));
    for (let i = first + 1; i < last; i++) { g.lineTo(this.x(list[i][0]), this.y(p, list[i - 1][1])); g.lineTo(this.x(list[i][0]), this.y(p, list[i][1])); }
    if (last === list.length) g.lineTo(this.x(Math.min(this.length, this.t1)), this.y(p, list[last - 1][1]));
    g.stroke();
  }

  some(list, extra) {
    return list.slice(Math.max(0, from(list, this.t0, v => v[0]) - extra), from(list, this.t1, v => v[0]) + extra);
  }
  range_rtt(p) { return this.upward(p, Math.max(0, ...this.some(this.stream.rtt, 0).map(v => v[1]))); }
  draw_rtt(p) {
    const g = this.g, list = this.some(this.stream.rtt, 1);
    g.fillStyle = colourOf(p.colour);
    for (const [t, rtt] of list) mark(g, 'dot', this.x(t), this.y(p, rtt), list.length > 800 ? 2.6 : 3.6);
  }
  range_flight(p) { return this.upward(p, Math.max(0, ...this.some(this.stream.in_flight, 1).map(v => v[1]))); }
  draw_flight(p) {
    const g = this.g, list = this.some(this.stream.in_flight, 1);
    if (!list.length) return;
    const base = this.y(p, 0);
    g.beginPath(); g.moveTo(this.x(list[0][0]), base);
    let before = 0;
    for (const [t, n] of list) { g.lineTo(this.x(t), this.y(p, before)); g.lineTo(this.x(t), this.y(p, n)); before = n; }
    g.lineTo(this.x(Math.min(this.length, this.t1)), this.y(p, before)); g.lineTo(this.x(Math.min(this.length, this.t1)), base);
    g.fillStyle = colourOf(p.colour); g.globalAlpha = 0.22; g.fill(); g.globalAlpha = 1;
    g.strokeStyle = colourOf(p.colour); g.lineWidth = 1.3; g.stroke();
  }
  bins() {
    const {step, bytes} = this.stream.goodput;
    return bytes.map((n, i) => [i * step, n * 8e9 / step]).filter(v => v[0] + step >= this.t0 && v[0] <= this.t1);
  }
  range_good(p) { return this.upward(p, Math.max(0, ...this.bins().map(v => v[1]))); }
  draw_good(p) {
    const g = this.g, base = this.y(p, 0), step = this.stream.goodput.step;
    g.fillStyle = colourOf(p.colour); g.globalAlpha = 0.75;
    for (const [t, rate] of this.bins()) {
      const x = this.x(t), w = this.x(t + step) - x;
      if (rate > 0) g.fillRect(x, this.y(p, rate), Math.max(0.7, w - (w > 4 ? 1 : 0)), base - this.y(p, rate));
    }
    g.globalAlpha = 1;
  }

  // Returns a description of the data at the pointer as [title, lines], or null if there is no data.
  at(x, y) {
    const panel = this.panels.find(p => y >= p.y - 6 && y <= p.y + p.height + 6), t = this.timeAt(x);
    if (!panel || x < MARGIN.left - 6 || x > this.width - MARGIN.right + 6) return null;
    if (panel.id === 'psn') return this.eventAt(x, y);
    if (panel.id === 'good') {
      const bin = this.bins().find(v => t >= v[0] && t < v[0] + this.stream.goodput.step);
      return bin ? ['Goodput ' + rateText(bin[1]), ['from ' + duration(bin[0]) + ' for ' + duration(this.stream.goodput.step)]] : null;
    }
    const list = panel.id === 'rtt' ? this.stream.rtt : this.stream.in_flight;
    let i = from(list, t, v => v[0]);
    if (panel.id === 'flight') i = Math.max(0, i - 1);
    else if (i > 0 && (i === list.length || t - list[i - 1][0] < list[i][0] - t)) i--;
    const v = list[i];
    if (!v) return null;
    return panel.id === 'rtt' ? ['Round trip ' + duration(v[1]), ['PSN ' + wirePsn(v[2]), 'answered at ' + duration(v[0])]]
      : [number(v[1]) + (v[1] === 1 ? ' packet' : ' packets') + ' in flight', [bytesText(v[2]) + ' of payload', 'at ' + duration(v[0])]];
  }
  eventAt(x, y) {
    let best = null, distance = 15 * 15;
    for (const hit of this.hits) {
      const d = (hit[0] - x) ** 2 + (hit[1] - y) ** 2;
      if (d <= distance) { distance = d; best = hit[2]; }
    }
    if (best === null) return null;
    const e = this.stream.events, lines = [];
    const kind = this.kinds[e.k[best]];
    if (kind !== 'missing') lines.push(this.opcodes[e.o[best]] || 'opcode ' + e.o[best]);
    if (e.b[best]) lines.push(number(e.b[best]) + ' bytes of payload');
    lines.push('at ' + duration(e.t[best]));
    if (e.f[best] & LOST) lines.push(kind === 'missing' ? 'lost before the place of the capture' : 'lost');
    if (e.f[best] & MARKED) lines.push('marked Congestion Experienced');
    return [`PSN ${wirePsn(e.p[best])}: ${kind}`, lines];
  }
}
