"""rocid.metrics: what monitoring gets, judged by a parser of the format, and by promtool where it is installed."""
import json
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request

import lab
import pcap
import single
from lab import Failure, Rocid

PYTHON = '/usr/bin/python3'  # the one that has prometheus_client
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
    """Every line of the metrics parses. A counter grows with traffic. The dashboard uses only metrics that rocid exports."""
    port = lab.free_port()
    with Rocid(args=['--set', f'rocid.metrics="127.0.0.1:{port}"']) as rocid:
        before = scrape(port)
        pcap.run_pingpong(rocid, {device: lab.gid_indexes(rocid, device) for device in single.DEVICES})
        text = scrape(port)
        judged = subprocess.run([PYTHON, '-c', JUDGE], input=text, capture_output=True, text=True, check=False)
        if judged.returncode != 0 or int(judged.stdout) < 100:
            raise Failure(f'prometheus_client: {judged.stdout}{judged.stderr[-800:]}')
        series = 'roci_device_tx_messages_total{device="roci0"}'
        if value(text, series) - value(before, series) != 100:
            raise Failure(f'{series}: {value(before, series)}, then {value(text, series)}; 100 messages were sent')
        dashboard = json.loads((lab.REPO / 'config/grafana.json').read_text())
        names = {n for p in dashboard['panels'] for t in p['targets'] for n in re.findall(r'roci_\w+', t['expr'])}
        # gauges of users have a series only while there are users
        if absent := {n for n in names if f'# TYPE {n.removesuffix("_total")} ' not in text}:
            raise Failure(f'config/grafana.json names {absent}, which rocid does not serve')
        try:
            scrape(port, '/else')
            raise Failure('GET /else: 404 wanted')
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise Failure(f'GET /else: {error.code}, 404 wanted') from None
        with socket.create_connection(('127.0.0.1', port)) as silent:  # says nothing; rocid ends all the same
            del silent
            rocid.process.terminate()
            if rocid.process.wait(20) != 0:
                raise Failure(f'rocid ended with {rocid.process.returncode}')


def promtool():
    with tempfile.TemporaryDirectory() as folder:
        where = f'{folder}/metrics'
        with Rocid(args=['--set', f'rocid.metrics="{where}"']) as rocid:
            del rocid
            text = subprocess.run(['curl', '-s', '--unix-socket', where, 'http://x/metrics'], capture_output=True, text=True, check=True).stdout
    done = subprocess.run(['promtool', 'check', 'metrics'], input=text, capture_output=True, text=True, check=False)
    if 'error while linting' in done.stderr:
        raise Failure(f'promtool: {done.stderr[-800:]}')


def refused():
    """An address that cannot be listened on is said at the start."""
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
if shutil.which('promtool'):  # Debian's package prometheus, 96 MB: not in .dev/packages.txt
    ALONE['metrics: promtool accepts them'] = promtool
