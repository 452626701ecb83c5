#!/usr/bin/env python3
"""Makes the exports of rdma-core's private nodes (the symbol versions IBVERBS_PRIVATE_*) from their table.

    private_symbols.py TABLE PUBLIC_MAP --map OUT      the linker's version script: PUBLIC_MAP and the private nodes
    private_symbols.py TABLE --aliases OUT             assembler directives that export each symbol in each of its nodes

A symbol that is in several nodes needs one alias per node, because the assembler gives a symbol only one version. dlsym(3) and the
linker use the default version of a symbol. The default version is the first node of the symbol with at least the number PREFERRED.
If there is no such node, the default version is the symbol's first node.
"""
import argparse
import pathlib
import re

NODES = [33, 34, 57, 59, 64, 65]
PREFERRED = 34
TARGETS = {'own': 'own_{}', 'nothing': 'private_nothing', 'EOPNOTSUPP': 'private_errno', 'NULL': 'private_null', '-1': 'private_minus_one'}


def read(table):
    """Yields symbol, target and nodes of each row."""
    for number, line in enumerate(table.read_text(encoding='utf-8').splitlines(), 1):
        if not line.strip() or line.startswith('#'):
            continue
        row = re.fullmatch(r'(\S+)\s+(\S+)\s+(\d+)-(\d*)', line)
        if row is None or row[2] not in TARGETS:
            raise SystemExit(f'{table}:{number}: expected SYMBOL RESULT FIRST-[LAST], got: {line}')
        last = int(row[4] or NODES[-1])
        nodes = [n for n in NODES if int(row[3]) <= n <= last]
        if int(row[3]) not in NODES or last not in NODES or not nodes:
            raise SystemExit(f'{table}:{number}: {row[3]}-{row[4]} is no range of the nodes {NODES}')
        yield row[1], TARGETS[row[2]].format(row[1]), nodes


def aliases(table):
    lines = []
    for symbol, target, nodes in read(table):
        default = next((n for n in nodes if n >= PREFERRED), nodes[0])
        for node in nodes:
            name = symbol.replace('*', str(node))
            at = '@@' if '*' in symbol or node == default else '@'
            alias = f'{name}__in_{node}'
            lines.append(f'__asm__(".globl {alias}\\n.set {alias}, {target}\\n.symver {alias}, {name}{at}IBVERBS_PRIVATE_{node}");')
    return '// Made by private_symbols.py.\n' + '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('table', type=pathlib.Path)
    parser.add_argument('public_map', nargs='?', type=pathlib.Path)
    parser.add_argument('--map', type=pathlib.Path)
    parser.add_argument('--aliases', type=pathlib.Path)
    options = parser.parse_args()
    if options.map:
        nodes = ''.join(f'\nIBVERBS_PRIVATE_{n} {{\n}};\n' for n in NODES)
        options.map.write_text(options.public_map.read_text(encoding='utf-8') + nodes, encoding='utf-8')
    if options.aliases:
        options.aliases.write_text(aliases(options.table), encoding='utf-8')


main()
