"""Tests of the output of rocid.metrics. A parser of the format checks the output. If promtool is installed, promtool checks
the output too. The node exporter is tested as well."""
import json
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import lab
import pcap
import single
from lab import Failure, Program, Rocid

PYTHON = '/usr/bin/python3'  # the interpreter for which prometheus_client is installed
JUDGE = 'import sys\nfrom prometheus_client.openmetrics.parser import text_string_to_metric_families as parse\n' \
        'print(sum(len(f.samples) for f in parse(sys.stdin.read())))'


def missing():
    done = subprocess.run([PYTHON, '-c', 'import prometheus_client.openmetrics.parser'], check=False, capture_output=True)
    return 'no prometheus_client (./dev setup installs python3-prometheus-client)' if done.returncode else None


def scrape(port, path='/metrics'):
    with urllib.request.urlopen(f'http://127.0.0.1:{port}{path}', timeout=20) as answer:
        return answer.read().decode()


def value(text, series):
    found = re.search(rf'(?m)^{re.escape(series)} (\d+)$', text)
    if not found:
        raise Failure(f'no series {series}')
    return int(found[1])


def monitored():
    """Every line of the metrics must be parsed without an error. A counter must increase with traffic. The dashboard
    may use only metrics that rocid exports."""
    port = lab.free_port()
    with Rocid(args=['--set', f'rocid.metrics="127.0.0.1:{port}"']) as rocid:
        before = scrape(port)
        pcap.run_pingpong(rocid, {device: lab.gid_indexes(rocid, device) for device in single.DEVICES})
        text = scrape(port)
        judged = subprocess.run([PYTHON, '-c', JUDGE], input=text, capture_output=True, text=True, check=False)
        if judged.returncode != 0 or int(judged.stdout) < 100:
            raise Failure(f'prometheus_client: {judged.stdout}{judged.stderr[-800:]}')
        series = 'roci_device_tx_messages_total{device="roci0",port="1"}'
        if value(text, series) - value(before, series) != 100:
            raise Failure(f'{series}: {value(before, series)}, then {value(text, series)}; 100 messages were sent')
        dashboard = json.loads((lab.REPO / 'config/grafana.json').read_text())
        names = {n for p in dashboard['panels'] for t in p['targets'] for n in re.findall(r'roci_\w+', t['expr'])}
        # The test searches for the TYPE lines, because the gauges of users have a series only while there are users.
        if absent := {n for n in names if f'# TYPE {n.removesuffix("_total")} ' not in text}:
            raise Failure(f'config/grafana.json names {absent}, which rocid does not serve')
        try:
            scrape(port, '/else')
            raise Failure('GET /else: 404 wanted')
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise Failure(f'GET /else: {error.code}, 404 wanted') from None
        with socket.create_connection(('127.0.0.1', port)) as silent:  # a client that sends nothing must not delay the end of rocid
            del silent
            rocid.process.terminate()
            if rocid.process.wait(20) != 0:
                raise Failure(f'rocid ended with {rocid.process.returncode}')


def no_promtool():
    # The package needs 96 MB, so it is not in .dev/packages.txt.
    return None if shutil.which('promtool') else "no promtool (Debian's package prometheus)"


def promtool():
    """promtool must parse the metrics. Its exit code 3 only means that it recommends other names or units."""
    port = lab.free_port()
    with Rocid(args=['--set', f'rocid.metrics="127.0.0.1:{port}"']) as rocid:
        pcap.run_pingpong(rocid, {device: lab.gid_indexes(rocid, device) for device in single.DEVICES})
        text = scrape(port)
    done = subprocess.run(['promtool', 'check', 'metrics'], input=text, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3) or 'error while linting' in done.stderr:
        raise Failure(f'promtool returned {done.returncode}: {done.stderr[-800:]}')
    broken = subprocess.run(['promtool', 'check', 'metrics'], input='roci{ 1\n', capture_output=True, text=True, check=False)
    if broken.returncode in (0, 3):
        raise Failure('promtool accepts what is no metric')


NODE_EXPORTER = 'prometheus-node-exporter'
# Series of the node exporter's infiniband collector. Traffic must increase their values.
EXPORTED = ('node_infiniband_port_packets_transmitted_total', 'node_infiniband_port_packets_received_total', 'node_infiniband_port_data_transmitted_bytes_total',
            'node_infiniband_port_data_received_bytes_total')


def no_node_exporter():
    # The package starts a service that listens on all addresses, so it is not in .dev/packages.txt.
    if shutil.which(NODE_EXPORTER) is None:
        return f"no {NODE_EXPORTER} (Debian's package of this name)"
    return None


def exported(port):
    """Returns the series of the infiniband collector, or None if the exporter does not respond yet."""
    try:
        text = scrape(port)
    except (urllib.error.URLError, ConnectionError):
        return None
    return {name: float(value) for name, value in re.findall(r'(?m)^(node_infiniband_\S+) (\S+)$', text)}


def wait_for_series(port, wanted, exporter, limit=30):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        series = exported(port)
        if series is not None and wanted(series):
            return series
        if exporter.process.poll() is not None:
            break
        time.sleep(0.1)
    raise Failure(f'after {limit} s: {series}\n{exporter.output()[-1500:]}')


def node_exporter(rocid, gids):
    """Debian's unmodified node exporter is started by `roci run`. It must read the devices, and its counters must
    increase with traffic."""
    port = lab.free_port()
    exporter = Program(rocid, [NODE_EXPORTER, '--collector.disable-defaults', '--collector.infiniband', f'--web.listen-address=127.0.0.1:{port}'])
    try:
        before = wait_for_series(port, bool, exporter)
        series = [f'{name}{{device="{device}",port="1"}}' for name in EXPORTED for device in single.DEVICES]
        if absent := [s for s in series if s not in before]:
            raise Failure(f'the collector does not find {absent}; it has {list(before)}')
        pcap.run_pingpong(rocid, gids)
        wait_for_series(port, lambda now: all(now[s] > before[s] for s in series), exporter)
    finally:
        exporter.kill()


def refused():
    """If rocid cannot listen on the address of rocid.metrics, it must not start, and its message must contain the
    address."""
    with tempfile.NamedTemporaryFile() as log:
        for where in ('127.0.0.1', '192.0.2.77:9471'):
            process, serves = lab.begin([str(lab.ROCID), '--loopback', '--socket', f'{log.name}.sock', '--set', f'rocid.metrics="{where}"'], log.name)
            if serves:
                lab.finish(process)
                raise Failure(f'rocid serves with metrics = "{where}"')
            with open(log.name, encoding='utf-8') as text:
                if f'metrics = "{where}"' not in (said := text.read()):
                    raise Failure(f'metrics = "{where}": {said}')


ALONE = {'metrics: monitoring gets all counters': monitored, 'metrics: a wrong address is refused': refused}
PROMTOOL = {'metrics: promtool accepts them': promtool}
NODE = {'counters in /sys: the node exporter reads them': node_exporter}
