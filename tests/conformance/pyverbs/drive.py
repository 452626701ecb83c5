"""Runs rdma-core's Python suite, which is in FOLDER/tests. Prints one line per test on standard output: `ok | skip | fail NAME: text`.

    drive.py FOLDER one|two DEVICE PEER GID MODULE…

With `one` both ends of every test are on DEVICE, as the suite does by itself. With `two` the first end is on DEVICE and the second on PEER.
"""
import sys
import unittest


def traffic_between(base, utils, context_type, device, peer, gid):
    """Makes the ends use the devices in turn: the first end of a test uses `device`, the next end uses `peer`. If a
    test uses the GID of one of the devices as a destination, the function replaces the GID by that of the other
    device."""
    own, other = (context_type(name=name).query_gid(1, gid) for name in (device, peer))
    route_type = base.GlobalRoute

    def global_route(dgid=None, **more):
        swapped = {own.gid: other, other.gid: own}.get(dgid.gid, dgid) if dgid is not None else None
        return route_type(dgid=swapped, **more)

    ends = 0

    def create_context(resources):
        nonlocal ends
        resources.ctx = context_type(name=device if ends % 2 == 0 else peer)
        ends += 1

    set_up = base.RDMATestCase.setUp

    def set_up_anew(case):
        nonlocal ends
        ends = 0
        set_up(case)

    base.BaseResources.create_context = create_context
    base.RDMATestCase.setUp = set_up_anew
    base.GlobalRoute = utils.GlobalRoute = global_route


def addresses_from_gids(base, context_type):
    """Makes the suite compute a device's address from its GID. The suite itself reads the address of the device's
    kernel interface, but our devices may have no interface."""
    def get_ip_mac(case, dev, port, idx):
        gid = context_type(name=dev).query_gid(port, idx).gid.replace(':', '')
        mapped = gid.startswith('0' * 20 + 'ffff')
        ip = '.'.join(str(int(gid[i:i + 2], 16)) for i in range(24, 32, 2)) if mapped else None
        case.args.append([dev, port, idx, ip, '02:00:00:00:00:01' if ip else None])

    base.RDMATestCase._get_ip_mac = get_ip_mac


class Lines(unittest.TestResult):
    def say(self, word, test, text=''):
        print(f'{word} {test.id()}: {" ".join(str(text).split())}', flush=True)

    def addSuccess(self, test):
        self.say('ok', test)

    def addSkip(self, test, reason):
        self.say('skip', test, reason)

    def addError(self, test, err):
        self.say('fail', test, self._exc_info_to_string(err, test)[-600:])

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addError(subtest, err)


def main():
    folder, mode, device, peer, gid, *modules = sys.argv[1:]
    sys.path[:0] = [folder, f'{folder}/tests']
    sys.argv[1:] = ['--dev', device, '--gid', gid]
    from args_parser import parser
    parser.parse_args()
    import tests.base as base
    import tests.utils as utils
    from pyverbs.device import Context
    addresses_from_gids(base, Context)
    if mode == 'two':
        traffic_between(base, utils, Context, device, peer, int(gid))
    suite = unittest.defaultTestLoader.loadTestsFromNames([f'tests.{m}' for m in modules])
    suite.run(Lines())


if __name__ == '__main__':
    main()
