#!/usr/bin/env python3
"""Checks three rules. Each folder includes only permitted folders. A file of stack/ uses the namespace of its folder, of an enclosing folder, or a
namespace within the namespace of its folder. Files and functions have at most the permitted length. Prints every violation. The exit code is 1 if
there is a violation.

    tests/layering/check_layers.py [SOURCE_ROOT]
"""
import pathlib
import re
import sys

# The modules of stack/. A module may include itself, abi/ and the modules in its row. Each row contains only modules
# of earlier rows.
STACK_ROOMS = {
    'base': set(),
    'wire': {'base'},
    'mem': {'base', 'wire'},
    'cc': {'base', 'wire'},
    'neighbour': {'base', 'wire'},
    'io': {'base', 'wire', 'mem', 'neighbour', 'cc'},
    'rings': {'base', 'wire', 'io'},
    'cm': {'base', 'wire'},
    'qp': {'base', 'wire', 'mem', 'io', 'rings', 'cc'},
    'engine': {'base', 'wire', 'mem', 'io', 'rings', 'cc', 'qp', 'neighbour'},
    'host': {'base', 'wire', 'mem', 'io', 'rings', 'cc', 'cm', 'qp', 'neighbour', 'engine'},
}
# Modules that are divided into parts. A part may use the files directly in its module, the modules that its module
# may use, and the parts in its row.
PARTS = {
    'host/paths': set(),
    'host/objects': {'host/paths'},
    'host/rdma_cm': {'host/paths'},
    'host/sessions': {'host/paths', 'host/objects', 'host/rdma_cm'},
}
# The modules that a folder outside stack/ may include.
ALL_STACK = set(STACK_ROOMS)
FOLDERS = {
    'verbs_api/abi': {'abi'},
    'verbs_api': {'abi'},
    'pmd_glue': ALL_STACK | {'abi', 'pmd_glue'},
}
# System headers that a folder must not include. stack/ makes no system call and uses no clock and no DPDK.
SYSTEM_BANNED = {
    'stack': re.compile(r'^(rte_.*|sys/(?!types\.h|uio\.h).*|linux/.*|netinet/.*|net/.*|unistd\.h|fcntl\.h|poll\.h|pthread\.h|'
                        r'sched\.h|signal\.h|time\.h|ctime|chrono|thread|fstream|iostream|filesystem)$'),
    'verbs_api': re.compile(r'^(rte_.*|spdlog/.*|CLI/.*|toml.*)$'),
}
SYSTEM_EXCEPTIONS = {  # (file, header): the auxiliary vector has the processor's features; reading it is no system call
    ('stack/wire/crc/pmull.cpp', 'sys/auxv.h'), ('stack/wire/crc/arm_crc.cpp', 'sys/auxv.h')}
MOST_LINES = {'file': 500, 'function': 50}
MEASURED = ('stack', 'verbs_api', 'pmd_glue', 'apps')
# The head of a function in the layout of clang-format. At most one class is around the function. The head begins at
# the indentation and ends with a brace. The last line of the function is a brace at the same indentation.
FUNCTION = re.compile(r'^(|    )(?!(?:namespace|struct|class|enum|union|extern|if|for|while|switch|else|do|try|return|using|static_assert'
                      r'|public|private)\b)[A-Za-z~].*\(')
NAMESPACE = re.compile(r'^namespace (roci(?:::\w+)*) \{')
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def allowed_rooms(relative):
    """Returns the modules that a file may include. Returns None if the file may include any module."""
    parts = relative.parts
    if parts[0] == 'stack' and len(parts) > 2:
        part = '/'.join(parts[1:3])
        inside = PARTS.get(part, set()) | {part} if part in PARTS else set()
        return STACK_ROOMS.get(parts[1], set()) | {parts[1], 'abi'} | inside
    for folder in sorted(FOLDERS, key=len, reverse=True):
        if relative.as_posix().startswith(folder + '/'):
            return FOLDERS[folder]
    return None


def room_of_include(path):
    """Returns the module to which a quoted include belongs. Returns None for a header of the same folder."""
    first, part = path.split('/')[0], '/'.join(path.split('/')[:2])
    if part in PARTS:
        return part
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


# A file of stack/ must declare its names in the namespace of its folder. The namespaces of enclosing folders, and
# namespaces within the namespace of its folder, are also permitted.
def problem_with_namespace(relative, namespace):
    folders = relative.parts[1:-1]
    if relative.parts[0] != 'stack':
        return None
    own = ['roci', *folders]
    names = namespace.split('::')
    shorter = min(len(own), len(names))
    if names[:shorter] == own[:shorter]:
        return None
    return f'{relative.parent} declares things in {namespace}, its namespace is {"::".join(own)}'


def problems_of(relative, text):
    for number, line in enumerate(text.splitlines(), 1):
        problem = None
        if match := INCLUDE.match(line):
            problem = problem_with(relative, match[1], match[2])
        elif match := NAMESPACE.match(line):
            problem = problem_with_namespace(relative, match[1])
        if problem:
            yield f'{relative}:{number}: {problem}'


def long_functions(lines):
    """Yields (number of the first line, length) of each function that is too long."""
    for number, line in enumerate(lines):
        match = FUNCTION.match(line)
        if not match:
            continue
        head = next((n for n, part in enumerate(lines[number:]) if part.endswith(('{', ';', '}', '\\'))), None)
        if head is None or not lines[number + head].endswith('{'):
            continue
        end = match[1] + '}'
        length = next((n for n, last in enumerate(lines[number:], 1) if last.startswith(end)), 0)
        if length > MOST_LINES['function']:
            yield number + 1, length


def lengths_in(relative, text):
    lines = text.splitlines()
    if len(lines) > MOST_LINES['file']:
        yield f'{relative}: {len(lines)} lines, more than {MOST_LINES["file"]}'
    for number, length in long_functions(lines):
        yield f'{relative}:{number}: a function of {length} lines, more than {MOST_LINES["function"]}'


def problems_in(root):
    for top in ('stack', 'verbs_api', 'pmd_glue'):
        for file in sorted((root / top).rglob('*.[ch]pp')):
            yield from problems_of(file.relative_to(root), file.read_text(encoding='utf-8'))
    for top in MEASURED:
        for file in sorted((root / top).rglob('*.[ch]pp')):
            yield from lengths_in(file.relative_to(root), file.read_text(encoding='utf-8'))


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    problems = list(problems_in(root))
    for problem in problems:
        print(problem)
    print(f'layering: {"clean" if not problems else f"{len(problems)} lines break it"}')
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
