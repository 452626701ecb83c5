"""Runs a guest that image.py has built, and executes commands in the guest."""
import base64
import dataclasses
import itertools
import os
import pathlib
import queue
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

CHANNELS = 4  # number of commands that can run at the same time
_numbers = itertools.count(1)
BOOT_LIMIT = 120


class GuestError(Exception):
    """The guest does not boot or does not respond, or a command of must() has failed."""


def why_not():
    """Returns the reason why this machine cannot run a guest, or ''."""
    if shutil.which('qemu-system-x86_64') is None:
        return 'qemu-system-x86 is not installed (./dev setup)'
    if os.geteuid() != 0 or not os.path.exists('/dev/net/tun'):
        return 'it takes root and /dev/net/tun to make a tap'
    return ''


class Channel:
    """A virtio port, to which an agent in the guest is connected. The agent executes one command at a time."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.pending = b''

    def run(self, command, limit):
        """Executes a shell command. Returns (status, output). The guest itself kills the command after `limit`
        seconds (status 137)."""
        number = next(_numbers)
        text = (f'setsid /usr/bin/dash -c {shlex.quote(command)} & main=$!\n'
                f'{{ sleep {limit}; kill -KILL -$main; }} >/dev/null 2>&1 & watch=$!\n'
                f'wait $main\necho $? >/tmp/status.{number}\nkill $watch\n')
        self.socket.sendall(f'{number} '.encode() + base64.b64encode(text.encode()) + b'\n')
        end, mark = time.monotonic() + limit + 30, f'\n@@END {number} '.encode()
        while mark not in self.pending or not self.pending.endswith(b'\n'):
            self.socket.settimeout(max(0.1, end - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                raise GuestError(f'the guest does not answer: {command}') from None
            if not data:
                raise GuestError(f'the guest is gone: {command}')
            self.pending += data
        output, _, status = self.pending.partition(mark)
        self.pending = b''
        return int(status), output.decode(errors='replace').replace('\r\n', '\n')


class Running:
    """A command that runs in the background of the guest."""

    def __init__(self, guest, command, limit):
        self.command, self.result, self.error = command, None, None
        self.thread = threading.Thread(target=self._run, args=(guest, command, limit), daemon=True)
        self.thread.start()

    def _run(self, guest, command, limit):
        try:
            self.result = guest.run(command, limit)
        except GuestError as error:
            self.error = error

    def done(self):
        return not self.thread.is_alive()

    def wait(self):
        self.thread.join()
        if self.error:
            raise self.error
        return self.result


OFFLOADS = ','.join(f'{o}=off' for o in 'csum guest_csum gso guest_tso4 guest_tso6 guest_ecn guest_ufo host_tso4 host_tso6 host_ecn host_ufo'.split())
KERNEL_WORDS = ('console=ttyS0 quiet loglevel=4 panic=-1 nokaslr mitigations=off no_timer_check tsc=reliable audit=0 net.ifnames=0 cryptomgr.notests nowatchdog '
                'rcupdate.rcu_cpu_stall_suppress=1 8250.nr_uarts=1 random.trust_cpu=on init_on_alloc=0')


def tap_netdev(name, tap, more=''):
    """Returns QEMU's arguments for a NIC that uses an existing tap."""
    return ['-netdev', f'tap,id={name},ifname={tap},script=no,downscript=no,vhost=off{more}']


def virtio_nic(netdev, mac, mtu, more=''):
    return ['-device', f'virtio-net-pci,netdev={netdev},mac={mac},romfile=,host_mtu={mtu},{OFFLOADS}{more}']


@dataclasses.dataclass(frozen=True)
class Machine:
    """The properties of the machine that QEMU emulates. The emulation is in software, so a guest is the same with and
    without KVM."""
    kind: str = 'pc,usb=off,vmport=off'
    memory: int = 768  # MiB
    cpus: int = 1
    devices: tuple = ()  # further arguments of QEMU
    words: tuple = ()  # words on the command line of the guest's kernel


class Guest:
    """A running guest. Use in a `with` statement. `inside` is a prefix of QEMU's command, for example to run QEMU in
    the network namespace of its taps."""

    def __init__(self, kernel, initramfs, machine, inside=()):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='roci-guest-'))
        self.console = self.folder / 'console'
        sockets = [self.folder / f'port{i}' for i in range(CHANNELS)]
        self.command = [*inside, 'qemu-system-x86_64', '-M', f'{machine.kind},memory-backend=memory',
                        '-object', f'memory-backend-memfd,id=memory,size={machine.memory}M,share=on',  # a vhost-user port needs shared memory
                        '-accel', 'tcg,thread=multi,tb-size=256', '-cpu', 'max,-erms,-fsrm',
                        '-smp', str(machine.cpus), '-m', str(machine.memory), '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot',
                        '-kernel', str(kernel), '-initrd', str(initramfs), '-append', ' '.join([KERNEL_WORDS, *machine.words]),
                        '-serial', f'file:{self.console}', *machine.devices, '-device', 'virtio-serial-pci,max_ports=8']
        self.monitor = self.folder / 'monitor'
        self.command += ['-monitor', f'unix:{self.monitor},server=on,wait=off']
        for i, path in enumerate(sockets):
            self.command += ['-chardev', f'socket,id=c{i},path={path},server=on,wait=off', '-device', f'virtserialport,chardev=c{i},name=agent.{i}']
        self.sockets, self.channels, self.process = sockets, queue.Queue(), None
        self.boot_seconds = 0.0

    def __enter__(self):
        start = time.monotonic()
        with open(self.folder / 'qemu.log', 'wb') as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        try:
            while not all(s.exists() for s in self.sockets):
                self._check(start)
            for path in self.sockets:  # connects before the guest writes, because output that nobody reads is lost
                self.channels.put(Channel(str(path)))
            while 'guest: ready' not in self.said():
                self._check(start)
        except BaseException:
            self.__exit__()
            raise
        self.boot_seconds = time.monotonic() - start
        return self

    def _check(self, start):
        if self.process.poll() is not None or time.monotonic() - start > BOOT_LIMIT:
            raise GuestError(f'the guest does not boot: {(self.folder / "qemu.log").read_text()[-500:]}\n{self.said()[-1500:]}')
        time.sleep(0.05)

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def pull(self, netdev, plugged):
        """Unplugs the cable of a NIC, or plugs it in again."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.monitor))
            monitor.sendall(f'set_link {netdev} {"on" if plugged else "off"}\n'.encode())
            time.sleep(0.2)  # the monitor needs some time to execute the command

    def died_of(self):
        """Returns the output of QEMU if QEMU has ended. Otherwise returns ''."""
        return (self.folder / 'qemu.log').read_text(errors='replace') if self.process.poll() is not None else ''

    def said(self):
        return self.console.read_text(errors='replace') if self.console.exists() else ''

    def run(self, command, limit=60):
        channel = self.channels.get()
        try:
            return channel.run(command, limit)
        finally:
            self.channels.put(channel)

    def start(self, command, limit=60):
        return Running(self, command, limit)

    def must(self, command, limit=60):
        """Runs a command that must succeed and returns its output."""
        status, output = self.run(command, limit)
        if status != 0:
            raise GuestError(f'in the guest, {command}: status {status}: {output[-800:]}')
        return output
