"""Tests with a VLAN interface of the kernel as a port (interface = "eth0.100", without the key `vlan`). The rocid at
the other end adds the VLAN tags itself."""
from bench import VLAN, Inside, addresses, check


class Rows:
    def __init__(self, bench):
        self.bench = bench

    def interface(self):
        nic = self.bench.kernel_nic
        self.bench.kernel_mtu(3000)  # XDP needs this MTU
        name = f'{nic}.{VLAN}'
        if self.bench.guest.run(f'ip link show {name}')[0] != 0:
            self.bench.guest.must(f'ip link add link {nic} name {name} type vlan id {VLAN} && echo 0 >/proc/sys/net/ipv6/conf/{name}/accept_dad && '
                                  f'ip link set {name} up && ip address add {addresses(7)["ipv4"][0]}/24 dev {name} && ip address add {addresses(7)["ipv6"][0]}/64 dev {name}')
        return name

    def over(self, kind, program, **how):
        def body():
            with Inside(self.bench, f'[engine]\nspin_us = 20\n[memory]\nmbufs = 4096\n[[device]]\nname = "roci0"\nport = "{kind}"\ninterface = "{self.interface()}"\n') as inside:
                said = self.bench.cross(inside.end(7), self.bench.there('vlan', 7), program, **how)
                verdicts = self.bench.status(inside)['engines'][0]['counters']
                check(verdicts['wrong_vlan'] == 0, f'{verdicts["wrong_vlan"]} frames of another VLAN')
                return said
        return body

    def rows(self):
        """Yields tuples (name, body, whether --quick runs the row)."""
        pingpong, bandwidth = 'ibv_rc_pingpong -m 1024 -n 200 -s 5000 -c', 'ib_write_bw -F -m 1024 -s 65536 -n 50'
        yield 'af_packet, ib_write_bw', self.over('af_packet', bandwidth), True
        yield 'af_packet, ibv_rc_pingpong, IPv6, it serves', self.over('af_packet', pingpong, family='ipv6', we_serve=True), True
        yield 'af_xdp, ib_write_bw', self.over('af_xdp', bandwidth.replace('1024', '2048')), True
