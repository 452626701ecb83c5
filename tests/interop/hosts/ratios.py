"""Compares RDMA over a kind of port with TCP of the kernel. Both use the same link in the same run."""
import itertools
import json
import re

from cases import XDP_MTU, Group, check, cross
from hosts import Program

PORT = itertools.count(19100)
BYTES = 65536


def two_sided(net, server_words, client_words, port, env=()):
    """Runs a TCP server on host a and its client on host b. Returns the output of the client."""
    server = Program([*net.a.inside, 'env', *env, *server_words])
    client = None
    try:
        net.a.wait_listening(port, server)
        client = Program([*net.b.inside, 'env', *env, *client_words])
        check(client.wait(60) == 0, f'{" ".join(client_words)}:\n{client.output()[-800:]}')
        return client.output()
    finally:
        if client:
            client.kill()
        server.kill()


def iperf3(net, seconds):
    """Returns the throughput of one TCP stream in megabytes per second."""
    port = next(PORT)
    said = two_sided(net, ['iperf3', '-s', '-1', '-p', str(port)], ['iperf3', '-c', net.a.ipv4, '-p', str(port), '-t', str(seconds), '-J'], port)
    return json.loads(said)['end']['sum_received']['bits_per_second'] / 8e6


def ucx(net, test, size, count):
    """Runs UCX's own perftest over TCP. Returns (half of the round trip in microseconds, megabytes per second)."""
    port = next(PORT)
    words = ['ucx_perftest', '-p', str(port), '-t', test, '-s', str(size), '-n', str(count), '-w', '100']
    said = two_sided(net, words, [*words, net.a.ipv4], port, ['UCX_TLS=tcp,self', f'UCX_NET_DEVICES={net.a.interface}', 'UCX_WARN_UNUSED_ENV_VARS=n'])
    final = [line.split() for line in said.splitlines() if line.startswith('Final:')]
    check(final, f'ucx_perftest has no result:\n{said[-800:]}')
    values = [float(v) for v in final[0][2:]]  # latency: percentile, average, overall; MB/s: average, overall; messages per second
    return values[2], values[4] * 1.048576


def perftest(net, words):
    """Runs a perftest. Returns the numbers of its last result line."""
    said = cross(net, words)
    return [float(v) for v in [line.split() for line in said.splitlines() if re.match(r'^\s+\d+\s+\d+\s+[\d.]+', line)][-1]]


def beside_tcp(kind, seconds, scale):
    def body(net):
        tcp = iperf3(net, seconds)  # measured before the rocids start, because an af_packet port also receives all frames of the kernel
        _, ucx_tcp = ucx(net, 'tag_bw', BYTES, 2000 * scale)
        ucx_half, _ = ucx(net, 'tag_lat', 64, 3000 * scale)
        for host in (net.a, net.b):
            host.start(host.device(kind))
        ours = perftest(net, f'ib_write_bw -s {BYTES} -n {2000 * scale}')[3] * 1.048576  # perftest prints MiB per second
        half = perftest(net, f'ib_send_lat -s 64 -n {3000 * scale}')[4]
        for host in (net.a, net.b):
            host.stop()
        return (f'\n    {kind}: RDMA WRITE of 64 KiB {ours:.0f} MB/s: {ours / tcp:.2f} of iperf3\'s {tcp:.0f}, {ours / ucx_tcp:.2f} of UCX tcp\'s {ucx_tcp:.0f}'
                f'\n    {kind}: SEND of 64 B, half a round trip {half:.1f} us: {half / ucx_half:.2f} of UCX tcp\'s {ucx_half:.1f}')
    return body


def cases_of(kind):
    def cases(quick):
        yield f'{kind}: beside the kernel\'s TCP on the same wire', beside_tcp(kind, 1 if quick else 3, 1 if quick else 5)
    return cases


GROUPS = [Group(f'{kind} beside TCP', cases_of(kind), mtu=XDP_MTU, judged=False) for kind in ('af_packet', 'af_xdp')]
