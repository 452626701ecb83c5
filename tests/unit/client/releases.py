#!/usr/bin/env python3
"""Checks that the client libraries export every symbol of every release of rdma-core, and no other symbols except those in OURS.

    releases.py FACTS LIBIBVERBS LIBRDMACM
"""
import collections
import pathlib
import re
import subprocess
import sys

OURS = {('madvise', 'GLIBC_2.2.5')}  # this madvise() keeps registered memory shared


def wanted(facts):
    first = {}
    for line in pathlib.Path(facts).read_text(encoding='utf-8').splitlines():
        if not line.startswith('#'):
            node, symbol, release = line.split()
            first[symbol, node] = int(release)
    return first


def exported(library):
    out = subprocess.run(['nm', '-D', '--defined-only', library], capture_output=True, text=True, check=True).stdout
    defined = [(kind, *re.split('@@?', name)) for kind, name in re.findall(r'^[0-9a-f]+ (\w) (\S+)$', out, re.M) if kind != 'A']
    unversioned = [d for d in defined if len(d) != 3]
    assert not unversioned, f'{library} exports without a version: {unversioned}'
    return {(symbol, node) for _, symbol, node in defined}


def main():
    facts, *libraries = sys.argv[1:]
    first = wanted(facts)
    here = set().union(*map(exported, libraries))
    missing = collections.defaultdict(list)
    for (symbol, node), release in first.items():
        if (symbol, node) not in here:
            missing[release].append(f'{symbol}@{node}')
    for release, symbols in sorted(missing.items()):
        print(f'FAIL: programs of rdma-core {release} and newer do not find {" ".join(sorted(symbols))}')
    extra = sorted(here - set(first) - OURS)
    if extra:
        print(f'FAIL: no release of rdma-core exports {extra}')
    print(f'{len(first)} symbols of the releases {min(first.values())} to {max(first.values())}, {len(here)} exported')
    return 1 if missing or extra else 0


sys.exit(main())
