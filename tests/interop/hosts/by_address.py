"""Programs that connect by rdma_cm to an address of the other host's kernel interface."""
import time

from cases import PORT, Group, check, plain

FI = 'fi_pingpong -p verbs -c -I 20'


def requests(host):
    return sum(row['sent'] for row in host.status()['rdma_cm']['messages'] if row['message'] in ('REQ', 'SIDR_REQ'))


def wait_served(host, port, server, limit=30):
    """Waits until a program on the host listens on `port` by rdma_cm."""
    end = time.monotonic() + limit
    while not any(listener['port'] == port for listener in host.status()['rdma_cm']['listeners']):
        check(server.process.poll() is None and time.monotonic() < end, f'the server does not listen:\n{server.output()[-1500:]}')
        time.sleep(0.05)


def connect(net, server_words, client_words, tcp=False, limit=60):
    """Runs a pair of programs. In the commands, {port} stands for the port, and {to} and {to6} stand for the
    addresses of the server. Both programs must return 0. The client's rocid must have sent a connection request."""
    port = next(PORT)
    words = {'port': port, 'to': net.a.ipv4, 'to6': net.a.ipv6}
    before = requests(net.b)
    net.wire.begin(net.a)
    server, client = net.a.rdma(server_words.format(**words)), None
    try:
        net.a.wait_listening(port, server) if tcp else wait_served(net.a, port, server)
        client = net.b.rdma(client_words.format(**words))
        status = client.wait(limit), server.wait(limit)
        outputs = f'server:\n{server.output()[-900:]}\nclient:\n{client.output()[-900:]}'
    finally:
        for program in filter(None, (client, server)):
            program.kill()
    check(status == (0, 0), f'client and server returned {status}\n{outputs}')
    check(requests(net.b) > before, f'no connection was asked for by rdma_cm\n{outputs}')


def rows(quick):
    yield 'by address: rping', lambda net: connect(net, 'rping -s -p {port} -C 100 -V', 'rping -c -a {to} -p {port} -C 100 -V')
    yield 'by address: rping, IPv6', lambda net: connect(net, 'rping -s -a {to6} -p {port} -C 100 -V', 'rping -c -a {to6} -p {port} -C 100 -V')
    for kind in ('msg', 'rdm'):
        words = f'{FI} -e {kind}'
        yield f'by address: {words}', lambda net, w=words: connect(net, w + ' -B {port}', w + ' -P {port} {to}', tcp=True)


GROUPS = [Group('by address', rows, plain('af_packet'))]
