"""Containers that have nothing of Rocinante in their images. Libraries, /sys and /dev come from `roci view`.

Sidecar form: a second container of each pod runs rocid and `roci view --watch`. Host form: the machine runs rocid; one container has the mounts that
`roci view` prints, the other asks for the CDI device rocinante/verbs. Strangers: two containers of different users use the rocid of a third user, which
runs in a third container with 256 MiB.
"""
import pathlib
import re
import shlex
import subprocess
import tempfile

import pods
import hosts
import lab
from memory_cases import LIMIT, MIB, Group, missing

CONFIG = r'[[device]]\nname = \"roci0\"\nport = \"udp\"\ninterface = \"wire0\"\n'
PORT = 18740


def folder_for_all(parent, name):
    made = parent / name
    made.mkdir(parents=True)
    made.chmod(0o777)
    return made


class Form(pods.Pods):
    """Two application containers, `left` and `right`, that a veth pair connects. Use in a `with` statement."""

    def __enter__(self):
        try:
            self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix='roci-views-')))
            self.folder.chmod(0o755)
            self.net = self.stack.enter_context(hosts.Network(1500, judged=False))
            self.left, self.right = self.pods = self.applications()
        except BaseException:
            self.stack.close()
            raise
        return self

    def pod(self, host, kind, *options, ours=False, **more):
        root = self.folder / f'{kind}{host.number}'
        pods.make_root(root, ours)
        pod = pods.Pod(host.namespace, host.ipv4, root, *options, **more)
        self.stack.callback(pod.close)
        return pod


class Sidecars(Form):
    def applications(self):
        return [self.application(host) for host in (self.net.a, self.net.b)]

    def application(self, host):
        return self.pod(host, 'app', *self.sidecar(host, CONFIG))

    def sidecar(self, host, config, **more):
        """Starts rocid and `roci view` in a container. Returns the options of podman for the containers that use them."""
        socket, view = (folder_for_all(self.folder, f'{name}{host.number}') for name in ('socket', 'view'))
        side = self.pod(host, 'side', '-v', f'{socket}:/run/rocinante', '-v', f'{view}:/view', ours=True, **more)
        side.must(f'printf "{config}" >/tmp/rocid.toml')
        side.must('rocid --config /tmp/rocid.toml >/tmp/log 2>&1 & for n in 1 2 3 4 5 6 7 8 9; do roci status && break; sleep 0.3; done; '
                  'roci status || cat /tmp/log')
        side.must('roci view /view --watch --host-network >/tmp/view 2>&1 & until [ -L /view/dev/infiniband/roci0 ]; do sleep 0.1; done')
        mounts = [f'{socket}:/run/rocinante:ro', f'{view}/sys/class:/sys/class:ro', f'{view}/dev/infiniband:/dev/infiniband:ro', f'{view}/lib:/opt/rocinante:ro']
        self.side = side
        return [*(word for mount in mounts for word in ('-v', mount)), '-e', 'LD_LIBRARY_PATH=/opt/rocinante']


class OnHost(Form):
    def applications(self):
        rocid = self.stack.enter_context(lab.Rocid(args=['--set', 'rocid.socket_mode=0o666']))
        pathlib.Path(rocid.folder.name).chmod(0o755)
        etc = self.folder / 'etc'
        for name in ('upper/cdi', 'work'):
            (etc / name).mkdir(parents=True)
        done = subprocess.run([str(lab.ROCI), 'view', str(self.folder / 'view'), '--socket', rocid.socket, '--cdi', str(etc / 'upper/cdi/rocinante.json')],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise hosts.Failure(done.stderr)
        printed = shlex.split(done.stdout.splitlines()[-1])
        if printed[:2] != ['podman', 'run'] or printed[-1] != 'IMAGE':
            raise hosts.Failure(done.stdout)
        return [self.pod(self.net.a, 'app', *printed[2:-1]), self.pod(self.net.b, 'app', '--device', 'rocinante/verbs=all', etc=etc)]


class Strangers(Sidecars):
    """rocid, which has two devices on the loopback, and both applications each have their own user and control group."""
    USERS = (1000, 1001)

    def applications(self):
        self.own = self.stack.enter_context(Group('rocid', LIMIT))
        self.groups = [self.stack.enter_context(Group(f'user{user}')) for user in self.USERS]
        options = self.sidecar(self.net.a, r'[rocid]\nsocket_mode = 0o666\n', user=1002, group=self.own)
        return [self.pod(host, 'app', *options, user=user, group=group) for host, user, group in zip((self.net.a, self.net.b), self.USERS, self.groups)]


def each_pays_for_its_own(both):
    """Each of two users registers 1 GiB and writes it to the memory of the other user. rocid has 256 MiB."""
    moved = perftest(('roci0', 'roci1'), '-s 536870912 -n 5 -b')(both)
    paid = [group.peak_bytes() for group in both.groups]
    if min(paid) < 1024 * MIB or both.own.killed():
        raise hosts.Failure(f'the users paid for {[n // MIB for n in paid]} MiB; {both.own.killed()} processes of rocid were killed for want of memory')
    both.side.must('roci status')
    return f'{moved}; the users paid for {[n // MIB for n in paid]} MiB, rocid for {both.own.peak_bytes() // MIB} MiB at most'


def nothing_of_ours(both):
    for pod in both.pods:
        said = pod.must('cat /proc/self/status; ls /usr/bin/roci* /usr/lib/*/rocinante 2>&1 || true; ls /sys/class/net/')
        for wanted in (r'^CapBnd:\s+0+$', r'^Seccomp:\s+2$', r'/usr/bin/roci\*: No such file', r'^wire0$'):
            if not re.search(wanted, said, re.M):
                raise hosts.Failure(f'not {wanted}:\n{said}')


def finds_devices(both):
    for pod in both.pods:
        for command, wanted in (('ibv_devinfo', r'hca_id:\s+roci0'), ('ucx_info -d', r'Transport: rc_verbs\s+#\s+Device: roci0:1'),
                                ('fi_info -p verbs', r'provider: verbs')):
            said = pod.must(command)
            if not re.search(wanted, said):
                raise hosts.Failure(f'{command}: not {wanted}:\n{said[-1500:]}')


def cannot_write(both):
    for pod in both.pods:
        said = pod.must('for f in /sys/class/infiniband /dev/infiniband /opt/rocinante; do touch $f/mine 2>&1; done || true')
        if said.count('Read-only') != 3:
            raise hosts.Failure(said)


def perftest(devices, words='-n 500'):
    def body(both):
        server, client = (f'ib_write_bw -d {device} -x 1 -F {words} -p {PORT}' for device in devices)
        rows = [line.split() for line in both.pair(server, f'{client} {both.left.address}', PORT).splitlines() if re.match(r'^\s+\d+\s+\d+\s+[\d.]+', line)]
        if not rows:
            raise hosts.Failure('no result line')
        return ' '.join(rows[-1])
    return body


def cases(name, devices):
    return [(f'{name}: {what}', body) for what, body in (('nothing of Rocinante in the image, no capability', nothing_of_ours), ('programs find devices', finds_devices),
                                                          ('the view is read-only', cannot_write), ('ib_write_bw', perftest(devices)))]


STRANGERS = [('strangers: each pays for its 1 GiB, rocid has 256 MiB', each_pays_for_its_own)] if not missing() else []
FORMS = [(Sidecars, cases('sidecar', ('roci0', 'roci0'))), (OnHost, cases("host's socket and CDI", ('roci0', 'roci1'))), (Strangers, STRANGERS)]
