"""The table of cases. A row contains the commands of both ends."""
import dataclasses

ALL_SIZES = '0,1,3,4,255,1024,1025,4097,65536'
RC_OPERATIONS = 'send send_imm write write_imm read fetch_add compare_swap'
FAR, VERY_FAR = 'fault.delay_us=20000', 'fault.delay_us=500000'
FAULTS = 'bad_write bad_read bad_atomic too_long not_ready gone'


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    server: str  # command; {dev}, {gid}, {port}, {address} (of the server) and {side} (the server's address for TCP) are replaced
    client: str
    family: str = 'ipv4'
    we_serve: bool = False
    quick: bool = True
    limit: int = 60
    tries: int = 2  # maximum number of tries; only cases with faults are repeated, or cases in which the guest itself fails
    ours: tuple = ()  # settings of rocid, which cause faults on this side
    theirs: str = ''  # netem rules in the guest, which cause faults on the other side
    listens: str = 'tcp'  # how the server listens: on a TCP port, by rdma_cm, or 'itself' (the client waits for the server); see Runner.ready()
    shows: str = ''  # text that the output of the client must contain
    net: str = 'tap'  # key of bench.NETS
    most_inquiries: int = -1  # maximum number of loss inquiries of rocid, which must send at least one; -1: no check
    judged: bool = False  # tshark checks every frame, and an independent computation checks its ICRC


def both_ways(name, command, to='{address}', **more):
    """Returns two cases with the same program at both ends. Each end is the server in one of the cases. `command` is
    the command of the server, to which the client appends `to`. It may also be a pair: (command of the server,
    command of the client)."""
    server, client = command if isinstance(command, tuple) else (command, f'{command} {to}')
    return [Case(f'{name}, they serve', server, client, **more), Case(f'{name}, we serve', server, client, we_serve=True, **more)]


def ops(name, options, operations, **more):
    command = f'ops -d {{dev}} -g {{gid}} -p {{port}} {options}'
    return Case(name, f'{command} {operations}', f'{command} {{address}} {operations}', listens='itself', shows='checks passed', **more)


def transports():
    yield ops('RC: every operation, IPv4', f'-s {ALL_SIZES}', RC_OPERATIONS, judged=True)
    yield ops('RC: every operation, IPv6', f'-s {ALL_SIZES}', RC_OPERATIONS, family='ipv6', judged=True)
    for mtu in (256, 512, 1024, 2048, 4096):
        for family in ('ipv4', 'ipv6'):
            yield ops(f'RC: path MTU {mtu}, {family}', f'-m {mtu} -s 0,{mtu - 1},{mtu},{mtu + 1},20000', 'send write_imm read', family=family,
                      quick=(mtu in (256, 4096)) == (family == 'ipv4') and mtu != 1024)
    yield ops('RC: messages of 1 and 8 MiB', '-m 4096 -s 1048576,8388608', 'send write read', limit=180)
    yield ops('RC: 16 QPs at once', '-q 16 -s 1,4096,65536', RC_OPERATIONS, limit=120)
    yield ops('UC: send and write, with immediate', f'-t uc -s {ALL_SIZES}', 'send send_imm write write_imm', judged=True)
    yield ops('UC, IPv6', '-t uc -s 0,1,5000', 'send send_imm write write_imm', family='ipv6', quick=False)
    yield ops('UD: send, with immediate', '-t ud -s 0,1,4,999,1024', 'send send_imm', judged=True)
    yield ops('UD, IPv6', '-t ud -s 0,1,4,999,1024', 'send send_imm', family='ipv6')
    yield ops('errors have their status at both ends', '-s 64', FAULTS, limit=120)


def alone():
    """Runs tests of tests/conformance in the guest: the rows of wrong arguments (verbs/arguments_*.cpp) on Soft-RoCE, and the events
    of rdma_cm (rdma_cm/events_test.cpp) with the kernel's rdma_cm. A difference without a reason in the row is a failure."""
    yield Case('wrong arguments, verb by verb', 'ROCI_OTHER_PROVIDER=1 ROCI_GID={gid} arguments --gtest_brief=1', 'true', listens='itself', limit=120, quick=False)
    yield Case("the fields of rdma_cm's events", 'CM_SERVER={address} CM_CLIENT={address} cm_errors --gtest_filter=CmEvents.* --gtest_brief=1',
               'true', listens='itself', limit=120, quick=False)


def losses():
    for rules, ours, quick in (('loss 0.1%', 'drop=0.001', False), ('loss 1%', 'drop=0.01', True), ('delay 1ms reorder 25% 50%', 'reorder=0.1', True),
                               ('duplicate 5%', 'duplicate=0.05', True), ('corrupt 1%', 'corrupt=0.01', False)):
        settings = tuple(f'fault.{s}' for s in ours.split())
        yield ops(f'RC: they have {rules}', '-r 5 -s 0,1,1024,5000,65536', RC_OPERATIONS, theirs=rules, quick=quick, limit=180)
        yield ops(f'RC: we have {ours}', '-r 5 -s 0,1,1024,5000,65536', RC_OPERATIONS, ours=settings, quick=quick, limit=180)
    # Soft-RoCE must drop our loss inquiries. The case has one connection, which sends at most three inquiries.
    yield ops('RC: we lose 5 % of what we send, and they ignore loss inquiries', '-r 20 -s 65536', 'write', ours=('fault.drop=0.05', 'engine.loss_reports=on'), limit=180,
              most_inquiries=3)
    yield ops('RC: both lose 1 %, IPv6', '-r 5 -s 0,1,1024,5000,65536', RC_OPERATIONS, theirs='loss 1%', ours=('fault.drop=0.01',), family='ipv6',
              quick=False, limit=180)


def programs():
    pingpong = {'rc': '-n 200 -s 5000 -m 1024 -c', 'uc': '-n 50 -s 4096 -m 1024', 'ud': '-n 100 -s 1000', 'srq': '-n 200 -s 3000 -q 4 -m 1024'}
    for kind, options in pingpong.items():
        for family in ('ipv4', 'ipv6'):
            yield from both_ways(f'ibv_{kind}_pingpong, {family}', f'ibv_{kind}_pingpong -d {{dev}} -g {{gid}} -p {{port}} {options}', to='{side}', family=family,
                                 quick=kind in ('rc', 'srq') and family == 'ipv4')
    # -o is the number of READs that perftest requests at the same time. The default of each end is the number of READs
    # that its own device can serve at the same time: 128 on Soft-RoCE, 16 on rocid.
    perftest = {'send_bw': '-s 4096 -n 500', 'write_bw': '-s 65536 -n 100', 'read_bw': '-o 16 -s 65536 -n 100', 'atomic_bw': '-o 16 -n 200',
                'send_lat': '-s 64 -n 200', 'write_lat': '-s 64 -n 200', 'read_lat': '-o 16 -s 64 -n 200', 'atomic_lat': '-o 16 -n 200'}
    for what, options in perftest.items():
        yield from both_ways(f'ib_{what}', f'ib_{what} -d {{dev}} -x {{gid}} -p {{port}} -F -m 1024 {options}', quick=what == 'write_bw')
    yield from other_nets()
    # Together the QPs send more than an emulated processor can receive. The QPs must adapt to the rate of this
    # processor (stack/qp/retry.cpp).
    yield from both_ways('ib_send_bw, 16 QPs', 'ib_send_bw -d {dev} -x {gid} -p {port} -F -m 1024 -s 4096 -n 100 -q 16', quick=False)
    yield from both_ways('ib_write_bw, 16 QPs, MTU 4096', 'ib_write_bw -d {dev} -x {gid} -p {port} -F -m 4096 -s 65536 -n 20 -q 16', quick=False)
    for kind in ('UC', 'UD'):
        yield from both_ways(f'ib_send_bw over {kind}', f'ib_send_bw -c {kind} -d {{dev}} -x {{gid}} -p {{port}} -F -s 1024 -n 100 -r 512', quick=False)


def other_nets():
    """Yields cases over a VLAN, and cases with the guest's NIC connected to rocid's vhost_user port. Only the link
    differs, and not the protocol."""
    pingpong, perftest = 'ibv_rc_pingpong -d {dev} -g {gid} -p {port} -n 200 -s 5000 -m 1024 -c', 'ib_write_bw -d {dev} -x {gid} -p {port} -F -m 4096 -s 65536 -n 100'
    for net, what in (('vlan', 'VLAN'), ('vhost', 'vhost_user')):
        for family in ('ipv4', 'ipv6'):
            yield from both_ways(f'{what}: ibv_rc_pingpong, {family}', pingpong, to='{side}', family=family, net=net, quick=family == 'ipv4', judged=True)
        yield from both_ways(f'{what}: ib_write_bw', perftest, to='{side}', net=net)
        rping = ('rping -s -a {address} -p {port} -C 10 -S 1000 -V', 'rping -c -a {address} -p {port} -C 10 -S 1000 -V')
        yield from both_ways(f'{what}: rping', rping, net=net, quick=False, listens='rdma_cm')


def connections():
    for family in ('ipv4', 'ipv6'):
        rping = ('rping -s -a {address} -p {port} -C 10 -S 1000 -V', 'rping -c -a {address} -p {port} -C 10 -S 1000 -V')
        yield from both_ways(f'rping, {family}', rping, family=family, listens='rdma_cm')
        send = ('ib_send_bw -R -d {dev} -x {gid} -p {port} -F -m 1024 -s 4096 -n 100', 'ib_send_bw -R -d {dev} -x {gid} -p {port} -F -m 1024 -s 4096 -n 100 {address}')
        if family == 'ipv6':  # with -R, perftest of Debian 12 connects only to IPv4 addresses
            send = None
        # The client requests a second connection at once, possibly before an emulated server listens again. So
        # rocid's frames are delayed.
        if send:
            for case in both_ways(f'ib_send_bw -R, {family}', send, family=family, listens='rdma_cm', ours=(FAR,), limit=120):
                yield case if case.we_serve else dataclasses.replace(case, quick=False, ours=(VERY_FAR,))
        yield from both_ways(f'rping, both lose 1 %, {family}', tuple(c.replace('-C 10', '-C 50') for c in rping), family=family, theirs='loss 1%',
                             ours=('fault.drop=0.01',), quick=family == 'ipv4', listens='rdma_cm', limit=120)
        if send:
            # After some losses the client is too early in spite of the delay. So the case may need several tries.
            yield from both_ways(f'ib_send_bw -R, both lose 1 %, {family}', send, family=family, theirs='loss 1%', ours=('fault.drop=0.01', VERY_FAR), quick=False,
                                 listens='rdma_cm', limit=40, tries=5)
    yield from both_ways('ucmatose', ('ucmatose -b {address} -p {port} -C 5 -c 4', 'ucmatose -s {address} -p {port} -C 5 -c 4'), quick=False, listens='rdma_cm')
    yield from both_ways('udaddy', ('udaddy -b {address} -C 5 -c 2', 'udaddy -s {address} -C 5 -c 2'), quick=False, listens='rdma_cm')


def all_cases():
    return [*transports(), *alone(), *programs(), *connections(), *losses()]
