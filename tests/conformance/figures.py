#!/usr/bin/env python3
"""Prints a table of the figures that perftest reports over rocid: bandwidth, message rate and latency.

    tests/conformance/figures.py [--seconds N]
"""
import argparse
import re

import lab
from pairs import Pair, both_outputs, wait_both

BANDWIDTH = [(program, size) for program in ('ib_send_bw', 'ib_write_bw', 'ib_read_bw') for size in (8, 64, 4096, 65536, 1 << 20)]
LATENCY = [(program, size) for program in ('ib_send_lat', 'ib_write_lat', 'ib_read_lat') for size in (2, 64, 4096, 65536)]


def measure(rocid, gids, program, args):
    """Returns the numbers in the result line of the client."""
    pair, port = Pair(program, args), lab.free_port()
    server = lab.Program(rocid, pair.command(0, port, gids, False))
    server.wait_listening(port)
    client = lab.Program(rocid, pair.command(1, port, gids, False))
    wait_both(server, client, client.started + 60)
    found = re.findall(r'^\s+(\d+\s+\d+\s+[\d.].*)$', client.output(), re.M)
    if client.process.returncode != 0 or not found:
        raise lab.Failure(both_outputs(server, client))
    return found[-1].split()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=int, default=2)
    options = parser.parse_args()
    with lab.Rocid() as rocid:
        gids = {device: lab.gid_indexes(rocid, device) for device in ('roci0', 'roci1')}
        print(f'{"program":14} {"bytes":>8} {"MB/s":>10} {"M msg/s":>9}')
        for program, size in BANDWIDTH:
            row = measure(rocid, gids, program, f'-s {size} -D {options.seconds}')
            print(f'{program:14} {size:8} {float(row[3]):10.1f} {float(row[4]):9.3f}', flush=True)
        print(f'\n{"program":14} {"bytes":>8} {"median us":>10} {"99 % us":>9}')
        for program, size in LATENCY:
            row = measure(rocid, gids, program, f'-s {size} -n 5000')
            print(f'{program:14} {size:8} {float(row[4]):10.2f} {float(row[7]):9.2f}', flush=True)


if __name__ == '__main__':
    main()
