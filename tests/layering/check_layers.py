#!/usr/bin/env python3
"""Who may include whom. Prints every include that breaks the house rules; exit code 1 if there is one.

    tests/layering/check_layers.py [SOURCE_ROOT]
"""
import pathlib
import re
import sys

# A room of stack/ may include these rooms, itself and abi/. Read downwards it is the layer diagram.
STACK_ROOMS = {
    'base': set(),
    'wire': {'base'},
    'mem': {'base', 'wire'},
    'cc': {'base', 'wire'},
    'neighbour': {'base', 'wire'},
    'io': {'base', 'wire', 'mem', 'neighbour'},
    'rings': {'base', 'wire', 'io'},
    'cm': {'base', 'wire'},
    'qp': {'base', 'wire', 'mem', 'io', 'rings', 'cc'},
    'engine': {'base', 'wire', 'mem', 'io', 'rings', 'cc', 'qp', 'neighbour'},
    'host': {'base', 'wire', 'mem', 'io', 'rings', 'cc', 'cm', 'qp', 'neighbour', 'engine'},
}
# Folders outside stack/: which rooms they may include.
ALL_STACK = set(STACK_ROOMS)
FOLDERS = {
    'verbs_api/abi': {'abi'},
    'verbs_api': {'abi'},
    'pmd_glue': ALL_STACK | {'abi', 'pmd_glue'},
}
# The core is sans-IO: no system call, no clock, no DPDK.
SYSTEM_BANNED = {
    'stack': re.compile(r'^(rte_.*|sys/(?!types\.h|uio\.h).*|linux/.*|netinet/.*|net/.*|unistd\.h|fcntl\.h|poll\.h|pthread\.h|'
                        r'sched\.h|signal\.h|time\.h|ctime|chrono|thread|fstream|iostream|filesystem)$'),
    'verbs_api': re.compile(r'^(rte_.*|spdlog/.*|CLI/.*|toml.*)$'),
}
SYSTEM_EXCEPTIONS = {  # (file, header): the auxiliary vector says what the processor has; reading it is no system call
    ('stack/wire/crc/pmull.cpp', 'sys/auxv.h'), ('stack/wire/crc/arm_crc.cpp', 'sys/auxv.h')}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def allowed_rooms(relative):
    """The rooms that a file may include, or None: anything."""
    parts = relative.parts
    if parts[0] == 'stack' and len(parts) > 2:
        return STACK_ROOMS.get(parts[1], set()) | {parts[1], 'abi'}
    for folder in sorted(FOLDERS, key=len, reverse=True):
        if relative.as_posix().startswith(folder + '/'):
            return FOLDERS[folder]
    return None


def room_of_include(path):
    """The room that a quoted include names, or None for a header of the same folder."""
    first = path.split('/')[0]
    return first if '/' in path and first in ALL_STACK | {'abi', 'pmd_glue', 'apps', 'rocid', 'roci'} else None


def problem_with(relative, bracket, path):
    top = relative.parts[0]
    banned = SYSTEM_BANNED.get(top)
    if bracket == '<' and banned and banned.match(path) and (relative.as_posix(), path) not in SYSTEM_EXCEPTIONS:
        return f'{top}/ may not use <{path}>'
    target, allowed = room_of_include(path), allowed_rooms(relative)
    if target is None or allowed is None or target in allowed:
        return None
    return f'{relative.parent} may not include "{path}" (allowed: {", ".join(sorted(allowed))})'


def includes_of(file):
    for number, line in enumerate(file.read_text(encoding='utf-8').splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1], match[2]


def problems_in(root):
    for top in ('stack', 'verbs_api', 'pmd_glue'):
        for file in sorted((root / top).rglob('*.[ch]pp')):
            relative = file.relative_to(root)
            for number, bracket, path in includes_of(file):
                problem = problem_with(relative, bracket, path)
                if problem:
                    yield f'{relative}:{number}: {problem}'


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    problems = list(problems_in(root))
    for problem in problems:
        print(problem)
    print(f'layering: {"clean" if not problems else f"{len(problems)} includes break it"}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
