"""Many connections by address: their rate, the number of simultaneous connections, leaks, and a network that loses
half of the frames."""
import pathlib
import re

from connections import ADDRESS, nothing_stays, wait_served
from lab import BUILD, REPO, Failure, Program, free_port

LOAD = BUILD / 'tests/conformance/rdma_cm/cm_load'
HALF_LOST = REPO / 'tests/conformance/half_lost.toml'
MOST_GROWTH = 16 << 20  # permitted growth in bytes, for buffers that rocid keeps; 100000 leaks of 200 bytes would exceed it


def missing():
    return None if LOAD.exists() else 'cm_load was not built (librdmacm-dev: ./dev setup)'


def resident(rocid):
    text = pathlib.Path(f'/proc/{rocid.process.pid}/status').read_text()
    return int(re.search(r'VmRSS:\s+(\d+) kB', text)[1]) << 10


def load(rocid, total, at_once, *more, limit, family='ipv4'):
    """Runs cm_load as a server and as a client. Returns (exit code, output) of the client."""
    port = free_port()
    address = ADDRESS['roci0'][family]
    server = Program(rocid, [str(LOAD), 'server', address, str(port)])
    client = None
    try:
        wait_served(rocid, server, port)
        client = Program(rocid, [str(LOAD), 'client', address, str(port), str(total), str(at_once), *more])
        code = client.wait(limit)
        text = client.output()
        if server.process.poll() is not None:
            raise Failure(f'the server ended with {server.process.returncode}:\n{server.output()[-1500:]}')
    finally:
        for program in (client, server):
            if program and program.process.poll() is None:
                program.kill()
    rocid.check_alive()
    return code, text


def all_good(code, text):
    if code != 0:
        raise Failure(f'not all connections came about:\n{text}')


def come_and_go(rocid, total):
    """Connections that have ended must leave no objects in rocid. rocid's memory may grow by at most MOST_GROWTH bytes."""
    all_good(*load(rocid, 200, 32, limit=60))
    before, memory = rocid.totals(), resident(rocid)
    code, text = load(rocid, total, 32, limit=60 + total / 50)
    all_good(code, text)
    print(f'    {text.splitlines()[0]}')
    nothing_stays(rocid, before)
    if (grown := resident(rocid) - memory) > MOST_GROWTH:
        raise Failure(f'rocid grew by {grown >> 20} MiB over {total} connections')


def at_once(rocid, total):
    before = rocid.totals()
    code, text = load(rocid, total, 512, 'hold', limit=60 + total / 50)
    all_good(code, text)
    print(f'    {text.splitlines()[0]}')
    if int(re.search(r'(\d+) open at once', text)[1]) != total:
        raise Failure(f'not {total} were open at once:\n{text}')
    nothing_stays(rocid, before)


def half_lost(rocid, total):
    """Every connection must be established or must end with an error event. At least 90 % must be established,
    because rocid sends a lost message of rdma_cm up to 15 times again."""
    code, text = load(rocid, total, total, limit=240)
    print(f'    {text.splitlines()[0]}')
    established = int(re.search(r'(\d+) established', text)[1])
    ended = dict((event, int(n)) for n, event in re.findall(r'(?m)^(\d+) ended in (\S+)', text))
    if code not in (0, 2) or established + sum(ended.values()) != total:
        raise Failure(f'exit code {code}:\n{text}')
    if odd := set(ended) - {'RDMA_CM_EVENT_UNREACHABLE', 'RDMA_CM_EVENT_REJECTED'}:
        raise Failure(f'connections ended in {odd}:\n{text}')
    if established < total * 0.9:
        raise Failure(f'only {established} of {total} came about:\n{text}')


def cases(quick):
    come, open_ = (2000, 1000) if quick else (100000, 10000)
    return {f'rdma_cm: {come} connections come and go, nothing stays': lambda rocid: come_and_go(rocid, come),
            f'rdma_cm: {open_} connections open at once': lambda rocid: at_once(rocid, open_)}


def faulty_cases(quick):
    total = 20 if quick else 100
    return {f'rdma_cm: {total} connections while half of all frames are lost': lambda rocid: half_lost(rocid, total)}
