"""Classes for the rows of vs_rxe. An end consists of two devices and of the prefixes of programs that use them. A row
is one figure."""
import re

from guest_side import Failed


class End:
    """Two devices, and the prefixes of programs that use these devices."""

    def __init__(self, name, devices, addresses, server='', client='', address='127.0.0.1', rocids=()):
        self.name, self.devices, self.addresses, self.server, self.client, self.address, self.rocids = name, devices, addresses, server, client, address, rocids
        self.gids = None

    def find_gids(self, bench):
        bench.only(self.rocids)
        self.gids = []
        for device, address, before in zip(self.devices, self.addresses, (self.client, self.server)):
            info = bench.guest.must(f'{before} ibv_devinfo -v -d {device}', 60)
            found = [i for i, g in re.findall(r'GID\[\s*(\d+)\]:\s*([0-9a-f:.]+)', info) if g == f'::ffff:{address}']
            if not found:
                raise Failed(f'no GID for {address} of {device}: {info}')
            self.gids.append(found[0])
        return self


class Row:
    def __init__(self, name, program, options, size=64, qps=1, first=0, least=20):
        self.name, self.program, self.options, self.size, self.qps = name, program, f'-s {size} {options}' + (f' -q {qps}' if qps > 1 else ''), size, qps
        self.least = least
        self.first = first or (100 if 'lat' in program else 1000 if size <= 4096 else 5 * max(1, 2**20 // size // qps))


class EndWith:
    """An end whose programs get the arguments `options` after all other arguments."""

    def __init__(self, end, options):
        self.__dict__.update(end.__dict__)
        self.base, self.options, self.name = end, options, end.name

    gids = property(lambda self: self.base.gids, lambda self, v: None)
