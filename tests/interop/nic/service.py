"""Tests in which systemd runs config/rocid.service. Only the row for PCI adds a drop-in file to this unit."""
import re

import machine
import nics
from bench import TAKES_LONG, End, check, config_addresses, wait_until

SOCKET = '/run/rocinante/rocid.sock'
CAPABILITIES = {'net_admin': 12, 'net_raw': 13, 'perfmon': 38, 'bpf': 39}
# A prefix that runs a command as a user who is a member of the socket's group.
USER = f'/usr/bin/setpriv --reuid 1000 --regid 1000 --groups $(stat -c %g {SOCKET}) --inh-caps=-all --bounding-set=-all'
DEVICE = 'ib_write_bw -F -m 1024 -s 65536 -n 50'


class Rows:
    def __init__(self, bench):
        self.bench, self.guest = bench, bench.guest if bench else None

    def configure(self, text):
        self.guest.must(f"mkdir -p /etc/rocinante; cat >/etc/rocinante/rocinante.toml <<'END'\n[engine]\nspin_us = 20\n[memory]\nmbufs = 4096\n{text}\nEND")

    def interface(self, kind):
        self.configure(f'[[device]]\nname = "roci0"\nport = "{kind}"\ninterface = "{self.bench.kernel_nic}"\naddresses = {config_addresses(6, 0)}')

    def property(self, name):
        return self.guest.must(f'systemctl show -P {name} rocid', TAKES_LONG).strip()

    def systemctl(self, verb):
        status, said = self.guest.run(f'systemctl {verb} rocid', TAKES_LONG)
        check(status == 0, f'{said}\n{self.journal()}')

    def journal(self):
        return self.guest.run('journalctl -u rocid --no-pager -o cat | tail -n 15')[1]

    def serves(self):
        """Waits until rocid serves. Returns the id of rocid's main process."""
        def found():
            pid = self.property('MainPID')
            return pid != '0' and self.guest.run(f'roci status --socket {SOCKET} >/dev/null 2>&1')[0] == 0 and pid
        try:
            return wait_until(found, 'rocid serves', 60)
        except Exception as failure:
            raise type(failure)(f'{failure}\n{self.journal()}') from None

    def cross(self, number=6, there='side', program=DEVICE):
        return self.bench.cross(End('roci0', f'{USER} roci run --socket {SOCKET} --', number), self.bench.there(there, number), program)

    # ---- rows ---------------------------------------------------------------------------------------------------------

    def starts(self):
        wait_until(lambda: self.guest.run('systemctl is-system-running --wait')[1].strip() == 'running', 'systemd is up', 60)
        self.interface('af_packet')
        self.systemctl('start')
        check(self.guest.run(f'roci status --socket {SOCKET} >/dev/null 2>&1')[0] == 0, f'systemd says started, but rocid does not serve:\n{self.journal()}')
        said = self.property('StatusText')
        check(said == 'serving roci0', f'its status is {said!r}')
        pid = self.serves()
        status = self.guest.must(f'cat /proc/{pid}/status')
        for what in ('CapEff', 'CapPrm', 'CapBnd', 'CapAmb'):
            mask = int(re.search(rf'{what}:\s+([0-9a-f]+)', status).group(1), 16)
            check(mask == sum(1 << bit for bit in CAPABILITIES.values()), f'{what} is {mask:x}, and not {", ".join(CAPABILITIES)}')
        uid = int(re.search(r'Uid:\s+(\d+)', status).group(1))
        check(61184 <= uid <= 65519, f'user {uid} is none of DynamicUser\'s')
        check('NoNewPrivs:\t1' in status and 'Seccomp:\t2' in status, status)
        limits = self.guest.must(f'cat /proc/{pid}/limits')
        check(re.search(r'Max locked memory\s+unlimited\s+unlimited', limits) and re.search(r'Max open files\s+1048576\s+1048576', limits)
              and re.search(r'Max nice priority\s+25\s+25', limits), limits)
        return f'user {uid}, ' + ', '.join(CAPABILITIES)

    def other_kind(self, kind):
        def body():
            self.bench.kernel_mtu(3000)  # with XDP, a frame must fit into a page
            self.interface(kind)
            self.systemctl('restart')
            self.serves()
            return self.cross()
        return body

    def crash(self):
        before = self.serves()
        self.guest.must(f'kill -9 {before}')
        after = wait_until(lambda: (pid := self.serves()) != before and pid, 'another rocid', 60)
        check(self.property('NRestarts') == '1', self.property('NRestarts'))
        return f'process {before}, then {after}; {self.cross()}'

    def bad_configuration(self):
        self.systemctl('stop')
        self.configure('[[device]]\nname = "a"\npeer = "a"\ncolour = "blue"')
        self.guest.run('systemctl start rocid')
        wait_until(lambda: self.property('ActiveState') in ('failed', 'inactive') and self.property('SubState') != 'auto-restart', 'it has given up', 60)
        said, times = self.journal(), self.property('NRestarts')
        check("colour" in said, said)
        check(times == '0', f'{times} restarts do not mend a configuration:\n{said}')
        self.guest.must('systemctl reset-failed rocid')

    def pci(self):
        nic = machine.NICS[0]
        nics.bind(self.bench, nic)
        self.guest.must(f'chown root:user {nics.group_file(self.bench, nic)}; chmod 660 {nics.group_file(self.bench, nic)}')
        self.configure(f'[[device]]\nname = "roci0"\nport = "pci"\npci = "{nic.address}"\naddresses = {config_addresses(1, 0)}')
        drop_in = '[Service]\nSupplementaryGroups=user\nAmbientCapabilities=\nCapabilityBoundingSet=\n'
        self.guest.must(f"mkdir -p /etc/systemd/system/rocid.service.d; printf '{drop_in}' >/etc/systemd/system/rocid.service.d/pci.conf; systemctl daemon-reload")
        try:
            self.systemctl('start')
            pid = self.serves()
            check('CapEff:\t0000000000000000' in self.guest.must(f'cat /proc/{pid}/status'), 'it has capabilities')
            return 'no capability; ' + self.cross(1, 'vmxnet3', 'ib_write_bw -F -m 4096 -s 65536 -n 50')
        finally:
            self.guest.run('systemctl stop rocid; rm -r /etc/systemd/system/rocid.service.d; systemctl daemon-reload')

    def stops(self):
        self.interface('af_packet')
        self.systemctl('start')
        self.serves()
        self.systemctl('stop')
        check(self.property('ActiveState') == 'inactive' and self.property('Result') == 'success', self.journal())
        check(not self.guest.run('ls -A /run/rocinante 2>/dev/null')[1].strip(), 'something is left in /run/rocinante')
        return 'the folder of the socket is gone'

    def rows(self):
        """Yields tuples (name, body, whether --quick runs the row)."""
        yield 'starts, as DynamicUser with four capabilities', self.starts, True
        yield 'ib_write_bw of another user over af_packet', lambda: self.cross(), True
        yield 'restarted with af_xdp', self.other_kind('af_xdp'), True
        yield 'comes back after kill -9', self.crash, True
        yield 'a wrong configuration is not tried again', self.bad_configuration, True
        yield 'pci, by the group of its file and no capability', self.pci, True
        yield 'stops', self.stops, True
