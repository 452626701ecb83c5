"""A guest with the kernel's Soft-RoCE and Rocinante, and the programs that run in the guest."""
import json
import os
import pathlib
import re
import time

INIT = r'''#!/usr/bin/busybox sh
. /usr/lib/guest/base.sh
if [ "$1" != rooted ]; then
    mkdir -p /mnt; mount --bind / /mnt; cd /mnt; mount --move . /; exec chroot . /init rooted
fi
cd /
chmod 755 /; chmod 1777 /tmp
mounts
mount -t tmpfs run /run
mkdir -p /sys/fs/bpf; mount -t bpf bpf /sys/fs/bpf
modules boot
modules later
ulimit -l unlimited
/usr/bin/ip link set lo up
agents
echo "guest: ready"
while :; do sleep 3600; done
'''

# Runs one server and one client. pair() sets the variables. $SP $SC is the command of the server. $CP $CC $ADDR is
# the command of the client. SP and CP are prefixes of commands, such as `roci run --`. The server listens on TCP port
# PORT. The client may run for LIMIT seconds.
PAIR = r'''
hex=$(printf %04X $PORT)
setsid $SP $SC >/tmp/pair.s 2>&1 </dev/null & server=$!
n=0
while ! grep -q ":$hex 0*:0000 0A" /proc/$server/net/tcp /proc/$server/net/tcp6 2>/dev/null; do
    n=$((n + 1)); [ $n -lt 400 ] && kill -0 $server 2>/dev/null || break; sleep 0.05
done
before=$(head -n 1 /proc/stat)
setsid $CP $CC $ADDR >/tmp/pair.c 2>&1 </dev/null & client=$!
( sleep $LIMIT; kill -KILL -$client ) >/dev/null 2>&1 & watch=$!
wait $client; status=$?
kill $watch 2>/dev/null
after=$(head -n 1 /proc/stat)
n=0; while kill -0 $server 2>/dev/null && [ $n -lt 30 ]; do n=$((n + 1)); sleep 0.1; done
[ $n -lt 30 ] || echo "@@HUNG server"
kill -KILL -$server 2>/dev/null
cat /tmp/pair.c
echo "@@STATUS $status"
echo "@@BEFORE $before"
echo "@@AFTER $after"
[ $status = 0 ] || { echo "@@SERVER"; tail -n 12 /tmp/pair.s; }
'''

TOPOLOGY = r'''
set -e
for n in a b c d; do ip netns add $n; ip -n $n link set lo up; done
# Six veth pairs. Soft-RoCE uses v. Both ends of v are in the initial namespace, because Soft-RoCE's UDP socket and routes exist only there.
# Three pairs connect namespaces a and b: af_packet and TCP use w, af_xdp uses x, and perftest's own TCP uses s. Two pairs connect namespaces
# c and d: udp uses u, and perftest's own TCP uses t. A rocid with an af_packet port also binds UDP port 4791, hence c and d.
ip link add va type veth peer name vb
ip link add wa netns a type veth peer name wb netns b
ip link add xa netns a type veth peer name xb netns b
ip link add sa netns a type veth peer name sb netns b
ip link add uc netns c type veth peer name ud netns d
ip link add tc netns c type veth peer name td netns d
ip link show dummy0 >/dev/null 2>&1 || ip link add dummy0 type dummy
ip link set dummy0 mtu 4200 up; ip address add 10.63.0.1/24 dev dummy0
for l in va vb; do ip link set $l up; done
ip address add 10.60.0.1/32 dev va; ip address add 10.60.0.2/32 dev vb
for p in w:61:a:b x:64:a:b s:62:a:b u:65:c:d t:66:c:d; do
    IFS=: read l n first second <<END
$p
END
    ip -n $first link set $l$first up; ip -n $second link set $l$second up
    ip -n $first address add 10.$n.0.1/24 dev $l$first; ip -n $second address add 10.$n.0.2/24 dev $l$second
done
# Routes packets between the two ends of v over the veth pair instead of lo.
for l in va vb all; do echo 1 >/proc/sys/net/ipv4/conf/$l/accept_local; echo 0 >/proc/sys/net/ipv4/conf/$l/rp_filter; done
ip route add 10.60.0.2/32 dev va table 60; ip route add 10.60.0.1/32 dev vb table 61
ip rule add pref 10 oif va to 10.60.0.2 lookup 60; ip rule add pref 11 oif vb to 10.60.0.1 lookup 61
ip rule add pref 100 lookup local; ip rule del pref 0
ip neigh add 10.60.0.2 lladdr $(cat /sys/class/net/vb/address) dev va nud permanent
ip neigh add 10.60.0.1 lladdr $(cat /sys/class/net/va/address) dev vb nud permanent
rdma link add rxel type rxe netdev dummy0
rdma link add rxea type rxe netdev va
rdma link add rxeb type rxe netdev vb
'''

LIB = 'usr/lib/x86_64-linux-gnu'


class Failed(Exception):
    pass


def contents(repo, build, work, image, machine):
    init = work / 'init.sh'
    if not init.exists() or init.read_text() != INIT:
        init.write_text(INIT)
    programs = ('nice', 'tc', 'rdma', 'ibv_devinfo', 'ibv_rc_pingpong', 'iperf3', 'ethtool', 'ib_write_bw', 'ib_send_bw', 'ib_read_bw', 'ib_write_lat', 'ib_send_lat')
    ours = {'usr/bin/rocid': 'apps/rocid/rocid', 'usr/bin/roci': 'apps/roci/roci', f'{LIB}/rocinante/libibverbs.so.1': 'verbs_api/libibverbs/libibverbs.so.1',
            f'{LIB}/rocinante/librdmacm.so.1': 'verbs_api/librdmacm/librdmacm.so.1'}
    files = {name: str(build / path) for name, path in ours.items()}
    drivers, links = machine.plugins()
    rxe = next(pathlib.Path(f'/{LIB}/libibverbs').glob('librxe-rdmav*.so'))
    files |= drivers | {str(rxe).lstrip('/'): str(rxe), 'etc/libibverbs.d/rxe.driver': '/etc/libibverbs.d/rxe.driver'}
    # Without crc32_pclmul: on an emulated processor Soft-RoCE is faster with crc32_generic.
    return image.Contents('vs', init, programs, files, links=links,
                          boot_modules=('crc32_generic', 'rdma_rxe', 'ib_uverbs', 'rdma_ucm', 'veth', 'dummy'), later_modules=('sch_netem', 'sch_tbf'))


class Bench:
    def __init__(self, guest, options):
        self.guest, self.options, self.port = guest, options, 20000
        self.rocids, self.running = {}, set()
        self.log = open(options.work / 'runs.log', 'a')
        self.calibration = options.work / 'calibration.json'
        self.calibrated = json.loads(self.calibration.read_text()) if self.calibration.exists() and not options.calibrate else {}

    def host_cpu(self):
        fields = pathlib.Path(f'/proc/{self.guest.process.pid}/stat').read_text().rpartition(')')[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')

    # ---- rocid --------------------------------------------------------------------------------------------------------

    def rocid(self, name, words, netns='', config=''):
        """Starts a rocid. If it does not start, raises Failed with the end of its log."""
        self.end_rocid(name)
        log, socket = f'/tmp/{name}.log', f'/run/{name}.sock'
        if config:
            self.guest.must(f"cat >/tmp/{name}.toml <<'END'\n{config}\nEND")
            words += f' --config /tmp/{name}.toml'
        before = f'/usr/bin/ip netns exec {netns} ' if netns else ''
        status, output = self.guest.run(f'''ulimit -l unlimited
            setsid {before}{self.options.under} rocid {words} --socket {socket} </dev/null >{log} 2>&1 & pid=$!
            echo $pid; while ! grep -q serving {log}; do kill -0 $pid 2>/dev/null || {{ wait $pid; exit $?; }}; sleep 0.1; done''', 90)
        if status != 0:
            raise Failed(f'rocid {name} ({status}): ' + self.guest.run(f'tail -n 5 {log}')[1])
        self.rocids[name] = int(output.split()[0])
        self.running.add(name)

    def end_rocid(self, name):
        pid = self.rocids.pop(name, None)
        self.running.discard(name)
        if pid:
            self.guest.run(f'kill -CONT {pid}; kill {pid}; n=0; while kill -0 {pid} 2>/dev/null && [ $n -lt 50 ]; do n=$((n+1)); sleep 0.1; done; kill -KILL {pid} 2>/dev/null', 30)

    def only(self, names):
        """Continues the rocids in `names`. Stops the other rocids, so that they use no CPU time."""
        words = []
        for name, pid in self.rocids.items():
            if name in names and name not in self.running:
                words.append(f'kill -CONT {pid}')
                self.running.add(name)
            elif name not in names and name in self.running:
                words.append(f'kill -STOP {pid}')
                self.running.discard(name)
        if words:
            self.guest.run('; '.join(words))

    def alive(self, name):
        return self.guest.run(f'kill -0 {self.rocids[name]}')[0] == 0

    # ---- runs ---------------------------------------------------------------------------------------------------------

    def pair(self, end, server, client, address, port, limit):
        self.only(end.rocids)
        words = {'SP': end.server, 'CP': end.client, 'SC': server, 'CC': client, 'ADDR': address, 'PORT': port, 'LIMIT': limit}
        text = ''.join(f"{k}='{v}'\n" for k, v in words.items()) + PAIR
        cpu, start = self.host_cpu(), time.monotonic()
        status, output = self.guest.run(text, limit + 40)
        cpu, wall = self.host_cpu() - cpu, time.monotonic() - start
        self.log.write(f'## {end.name}: {client}\n{output}\nhost: {cpu:.2f} s CPU in {wall:.2f} s\n')
        self.log.flush()
        if '@@STATUS 0' not in output:
            raise Failed(f'{end.name}: {client}: status {status}: ' + output[-700:])

        def busy(mark):
            user, nice, system, _, _, irq, soft = map(int, re.search(rf'{mark} cpu +(.*)', output).group(1).split()[:7])
            return (user + nice + system + irq + soft) / 100
        return output, {'host_cpu': cpu, 'wall': wall, 'guest_cpu': busy('@@AFTER') - busy('@@BEFORE')}

    def perftest(self, end, program, options, n, limit=60):
        """Runs a perftest. Returns (figure, costs). The unit of the figure is MiB/s or µs."""
        self.port += 1
        extra = getattr(end, 'options', '')  # perftest uses the last -m
        words = [f'{program} -F -d {dev} -x {gid} -p {self.port} -n {n} {options} {extra}' for dev, gid in ((end.devices[1], end.gids[1]), (end.devices[0], end.gids[0]))]
        output, costs = self.pair(end, words[0], words[1], end.address, self.port, limit)
        rows = [l.split() for l in output.splitlines() if re.match(r'\s*\d+\s+\d+\s+[\d.]', l)]
        if not rows:
            raise Failed(f'{end.name}: no figure: {output[-500:]}')
        row = rows[-1]
        if 'bw' in program:
            return float(row[3]), costs
        return float(row[4]), costs | {'avg': float(row[5]), 'p99': float(row[7])}

    def iperf(self, end, seconds):
        self.port += 1
        output, costs = self.pair(end, f'iperf3 -s -1 -p {self.port}', f'iperf3 -p {self.port} -t {seconds} -f k -c', end.address, self.port, 60)
        return float(re.findall(r'([\d.]+) Kbits/sec.*receiver', output)[-1]) * 1000 / 8 / 2**20, costs

    def figure(self, end, row):
        """Measures a figure once. If the time per iteration is unknown, first measures it by one or two runs, whose
        figures are not used."""
        if end.name == 'tcp':
            return self.iperf(end, self.options.seconds)
        key = f'{self.options.cpu}{self.options.smp if self.options.smp != 2 else ""}{row.section}: {row.name} {end.name}'
        if key not in self.calibrated:
            first, latency = row.first, 'lat' in row.program
            got = self.perftest(end, row.program, row.options, first)
            each = self.each(row, got, latency)
            if not latency and 1 / each > first * 8:  # the first run was too short for an exact time
                got = self.perftest(end, row.program, row.options, min(int(0.5 / each), first * 50))
                each = self.each(row, got, latency)
            self.calibrated[key] = each
            self.calibration.write_text(json.dumps(self.calibrated, indent=1))
        n = row.n = max(row.least, min(int(self.options.seconds / self.calibrated[key]), 1000000))
        got = self.perftest(end, row.program, row.options, n)
        self.calibrated[key] = (self.calibrated[key] * self.each(row, got, 'lat' in row.program)) ** 0.5
        return got

    def each(self, row, got, latency):
        """Returns the time per iteration in seconds. `got` is the result of perftest()."""
        return 2 * got[1]['avg'] / 1e6 if latency else row.size * row.qps / max(got[0], 1e-3) / 2**20
