#!/usr/bin/env python3
"""Records `roci top` in a terminal for docs/see.md.

    tests/conformance/record_top.py [--write]

Prints the screen. With --write puts it into the page, below its mark.
"""
import contextlib
import pathlib
import re
import sys

import exam
import top_cases
from lab import REPO, ROCI, Rocid

PAGE = REPO / 'docs/see.md'
MARK = '<!-- recorded by tests/conformance/record_top.py -->\n'
PROGRAMS = ('bulk', 'credits', 'sleeping_engine', 'not_connected')


def record():
    with Rocid() as rocid, contextlib.ExitStack() as stack:
        first = [stack.enter_context(exam.set_up(rocid, name))[0] for name in PROGRAMS]
        with top_cases.Terminal([ROCI, 'top', '--interval', '1', '--socket', rocid.socket], 100, 30) as terminal:
            terminal.wait_for(rf'^{first[1]} +credits')
            return terminal.wait_for(rf'^{first[0]} +\w+ \d+%')


def main():
    screen = '\n'.join(line.rstrip() for line in record().rstrip().splitlines())
    print(screen)
    if sys.argv[1:] == ['--write']:
        text = pathlib.Path(PAGE).read_text(encoding='utf-8')
        new = re.sub(re.escape(MARK) + r'```\n.*?```\n', lambda _: f'{MARK}```\n{screen}\n```\n', text, count=1, flags=re.S)
        pathlib.Path(PAGE).write_text(new, encoding='utf-8')


if __name__ == '__main__':
    main()
