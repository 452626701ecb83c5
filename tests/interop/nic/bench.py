"""The test bench: the guest, the namespace with the other ends of the guest's NICs, the rocids on both sides, and the
traffic between them."""
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path += [str(pathlib.Path(__file__).resolve().parents[2] / folder) for folder in ('conformance', 'interop/guest', 'interop/wire')]
import guest  # noqa: E402
import image  # noqa: E402
import lab  # noqa: E402
import machine  # noqa: E402
from lab import BUILD, ROCI, ROCID, Failure  # noqa: E402

VLAN = 100
SIDE = {'us': '10.98.0.2', 'them': '10.98.0.1'}  # addresses for the programs' own TCP connections
TAKES_LONG = 120  # seconds; commands in the guest are slow, because its processor is emulated on a busy machine
_ports = itertools.count(18600)


def addresses(number):
    """Returns {family: (address of the guest, address of the other end)} in the network of the NIC with this
    number."""
    return {'ipv4': (f'10.9{number}.0.2', f'10.9{number}.0.1'), 'ipv6': (f'fd9{number}::2', f'fd9{number}::1')}


def config_addresses(number, end):
    return json.dumps([f'{a[end]}/{24 if family == "ipv4" else 64}' for family, a in addresses(number).items()])


def check(condition, why):
    if not condition:
        raise Failure(why)


def wait_until(condition, what, limit=TAKES_LONG):
    end = time.monotonic() + limit
    while not (found := condition()):
        check(time.monotonic() < end, f'{what}: not within {limit} s')
        time.sleep(0.1)
    return found


def gid_index(devinfo, address):
    wanted = f'::ffff:{address}' if '.' in address else address
    found = [index for index, gid in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)', devinfo) if gid == wanted]
    check(found, f'no GID for {address}:\n{devinfo}')
    return found[0]


@dataclasses.dataclass
class End:
    """A device of a rocid, and the prefix of programs that use it."""
    device: str
    run: str  # prefix of a program's command
    number: int  # number of the network of the device


class Inside:
    """A rocid in the guest. Use in a `with` statement. `under` is a prefix of its command."""
    count = itertools.count(1)

    def __init__(self, bench, config, under=''):
        self.guest, self.config, self.under, self.number = bench.guest, config, under, next(self.count)
        self.status = None  # exit status after rocid has ended
        self.socket, self.log_path, self.pid = f'/tmp/rocid{self.number}.sock', f'/tmp/rocid{self.number}.log', 0

    def launch(self):
        """Starts the rocid. Returns True after it has begun to serve, or False if it has ended."""
        config, log = f'/tmp/rocid{self.number}.toml', self.log_path
        self.guest.must(f"cat >{config} <<'END'\n{self.config}\nEND")
        status, output = self.guest.run(f'''ulimit -l unlimited
            setsid {self.under} rocid --config {config} --socket {self.socket} </dev/null >{log} 2>&1 & pid=$!
            echo $pid; while ! grep -q serving {log}; do kill -0 $pid 2>/dev/null || {{ wait $pid; exit $?; }}; sleep 0.1; done''', TAKES_LONG)
        self.pid, self.status = int(output.split()[0]), status
        return status == 0

    def __enter__(self):
        if not self.launch():
            raise Failure(f'rocid does not start in the guest:\n{self.log()}')
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how='TERM'):
        self.guest.run(f'kill -{how} {self.pid}; while kill -0 {self.pid} 2>/dev/null; do sleep 0.1; done', 30)

    def log(self):
        return self.guest.run(f'cat {self.log_path}')[1]

    def end(self, number, device='roci0'):
        return End(device, f'roci run --socket {self.socket} --', number)

    def devinfo(self, device='roci0'):
        return self.guest.must(f'roci run --socket {self.socket} -- ibv_devinfo -v -d {device}', TAKES_LONG)


class Bench:
    """The guest and its peers. Use in a `with` statement. The namespace has one tap per NIC, one rocid with a device
    per tap, and one rocid with a VLAN device. The device on a tap has the name of the NIC."""

    def __init__(self, words=None):
        self.name = f'roci-nic-{os.getpid()}'
        self.inside = ['ip', 'netns', 'exec', self.name]
        self.stack, self.guest = contextlib.ExitStack(), None
        self.machine = machine.machine(*([words] if words is not None else []))

    def ip(self, *words):
        subprocess.run(['ip', '-n', self.name, *words], check=True, capture_output=True)

    def __enter__(self):
        try:
            kernel, initramfs = image.build(BUILD / 'guest', machine.contents(BUILD))
            self.folder = self.stack.enter_context(tempfile.TemporaryDirectory(prefix='roci-nic-'))
            subprocess.run(['ip', 'netns', 'add', self.name], check=True, capture_output=True)
            self.stack.callback(subprocess.run, ['ip', 'netns', 'delete', self.name], check=False)
            self.ip('link', 'set', 'lo', 'up')
            for nic in machine.NICS:
                self.tap(nic.name, bool(nic.tap))
                self.ip('address', 'add', f'10.9{nic.number}.0.9/24', 'dev', nic.name)  # the source address of pings
            self.tap(machine.SIDE, False)
            self.ip('address', 'add', f'{SIDE["them"]}/24', 'dev', machine.SIDE)
            self.start_rocid()
            self.guest = self.stack.enter_context(guest.Guest(kernel, initramfs, self.machine, self.inside))
            self.prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def tap(self, name, several):
        self.ip('tuntap', 'add', 'dev', name, 'mode', 'tap', *(['multi_queue'] if several else []))
        self.ip('link', 'set', name, 'mtu', str(machine.MTU))
        self.ip('link', 'set', name, 'up')

    def kernel_mtu(self, mtu):
        self.guest.must(f'ip link set {self.kernel_nic} mtu {mtu}')

    def prepare(self):
        """Configures the guest's own network interface and hugepages."""
        self.kernel_nic = self.guest.must("grep -l 01:00 /sys/class/net/*/address | head -1").split('/')[4]
        nic = self.kernel_nic
        self.guest.must(f'ip link set {nic} mtu {machine.MTU} && ip link set {nic} up && ip address add {SIDE["us"]}/24 dev {nic} && hugepages.sh 100')

    def __exit__(self, *_):
        self.stack.close()

    # ---- the other end ------------------------------------------------------------------------------------------------

    def start_rocid(self):
        taps = [(nic.name, nic.name, nic.number, '') for nic in machine.NICS]
        self.start_one('all', [*taps, ('side', machine.SIDE, 6, '')])
        self.start_one('vlan', [('vlan', machine.SIDE, 7, f'vlan = {VLAN}\n')])

    def start_one(self, which, rows):
        text = '[engine]\nmax_sleep_us = 200\n[memory]\nmbufs = 4096\nhugepages = "never"\n'
        for name, interface, number, more in rows:
            text += f'[[device]]\nname = "{name}"\nport = "af_packet"\ninterface = "{interface}"\naddresses = {config_addresses(number, 1)}\n{more}'
        config, log = pathlib.Path(self.folder) / f'{which}.toml', pathlib.Path(self.folder) / f'{which}.log'
        config.write_text(text)
        # DPDK's af_packet driver computes the fanout group of a socket from the process ID and the interface. Two
        # processes in one namespace may get the same group. The start of a rocid then fails and is repeated.
        for _ in range(3):
            process, serves = lab.begin([*self.inside, str(ROCID), '--config', str(config), '--socket', f'{self.folder}/{which}.sock'], log)
            if serves or 'Operation not permitted' not in log.read_text():
                break
            lab.finish(process)
        self.stack.callback(lab.finish, process)
        check(serves, 'rocid does not start:\n' + log.read_text())

    def there(self, name, number):
        socket = f'{self.folder}/{"vlan" if name == "vlan" else "all"}.sock'
        return End(name, ' '.join([*self.inside, str(ROCI), 'run', '--socket', socket, '--']), number)

    def shell(self, command, limit=TAKES_LONG):
        done = subprocess.run(command.split(), capture_output=True, text=True, timeout=limit, check=False)
        return done.returncode, done.stdout + done.stderr

    def ping(self, address, count=3):
        """Pings an address. Returns the round-trip times in ms."""
        said = self.shell(' '.join([*self.inside, 'ping', '-c', str(count), '-i', '0.5', '-W', '10', address]))[1]
        return [float(t) for t in re.findall(r'time=([\d.]+) ms', said)]

    # ---- traffic ------------------------------------------------------------------------------------------------------

    def cross(self, us, them, program, family='ipv4', we_serve=False):
        """Runs a program like perftest at both ends. Returns the result of the client as text."""
        port = next(_ports)
        option = '-g' if 'pingpong' in program else '-x'

        def words(end, mine):
            info = self.guest.must(f'{end.run} ibv_devinfo -v -d {end.device}', TAKES_LONG) if mine else self.shell(f'{end.run} ibv_devinfo -v -d {end.device}')[1]
            gid = gid_index(info, addresses(end.number)[family][0 if mine else 1])
            return f'{end.run} {program} -d {end.device} {option} {gid} -p {port}'
        ours, theirs = words(us, True), words(them, False)
        look = f'ss -ltnH "sport = :{port}"'
        if we_serve:
            server = self.guest.start(ours, TAKES_LONG)
            wait_until(lambda: server.done() or self.guest.run(look)[1].strip(), 'the guest listens')
            client = self.shell(f'{theirs} {SIDE["us"]}')
            return self.judged(client, server.wait())
        with subprocess.Popen(theirs.split(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
            try:
                listens = [*self.inside, 'ss', '-ltnH', f'sport = :{port}']
                wait_until(lambda: server.poll() is not None or subprocess.run(listens, capture_output=True, check=True).stdout, 'the other end listens')
                client = self.guest.run(f'{ours} {SIDE["them"]}', TAKES_LONG)
                output, _ = server.communicate(timeout=30 if client[0] == 0 else 1)
                return self.judged(client, (server.returncode, output))
            except subprocess.TimeoutExpired:
                raise Failure(f'the other end does not end; the guest said ({client[0]}):\n{client[1][-900:]}') from None
            finally:
                server.kill()

    @staticmethod
    def judged(client, server):
        check(client[0] == 0 and server[0] == 0, f'client ({client[0]}):\n{client[1][-900:]}\nserver ({server[0]}):\n{server[1][-900:]}')
        return figure(client[1])

    def status(self, inside):
        return json.loads(self.guest.must(f'roci status --json --socket {inside.socket}', TAKES_LONG))['host']


def figure(output):
    lines = [line.split() for line in output.splitlines() if re.match(r'\s*\d+\s+\d+\s+[\d.]', line)]
    if not lines:
        found = re.search(r'([\d.]+) usec/iter', output)
        return f'{float(found.group(1)):.0f} µs a round trip' if found else ''
    return f'{float(lines[-1][3]):.1f} MB/s' if 'BW' in output else f'{float(lines[-1][4]):.0f} µs'
