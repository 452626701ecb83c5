#!/usr/bin/env python3
"""Records what docs/see.md shows, from real runs: the screen of `roci top`, and the picture of a page of `roci plot`.

    tests/conformance/record.py top [--write]     needs tmux and pyverbs; prints the screen
    tests/conformance/record.py plot [--write]    needs perftest and Chromium; prints the path of the picture

With --write, `top` puts the screen into docs/see.md, below the comment "recorded by …", and `plot` puts the picture into docs/plot.png.
"""
import argparse
import contextlib
import json
import pathlib
import re
import shutil
import sys
import tempfile

import exam
import plot_cases
import top_cases
from lab import REPO, ROCI, Failure, Rocid

PAGE, PICTURE = REPO / 'docs/see.md', REPO / 'docs/plot.png'
MARK = '<!-- recorded by tests/conformance/record.py -->\n'
PROGRAMS = ('bulk', 'credits', 'sleeping_engine', 'not_connected')
SHOWN = 700_000  # length of the interval in the picture, in nanoseconds
SIZE = '--window-size=1180,1400'


def top(write):
    with Rocid() as rocid, contextlib.ExitStack() as stack:
        first = [stack.enter_context(exam.set_up(rocid, name))[0] for name in PROGRAMS]
        with top_cases.Terminal([ROCI, 'top', '--interval', '1', '--socket', rocid.socket], 100, 30) as terminal:
            terminal.wait_for(rf'^{first[1]} +credits')
            screen = terminal.wait_for(rf'^{first[0]} +\w+ \d+%')
    screen = '\n'.join(line.rstrip() for line in screen.rstrip().splitlines())
    print(screen)
    if write:
        text = PAGE.read_text(encoding='utf-8')
        new, found = re.subn(re.escape(MARK) + r'```\n.*?```\n', lambda _: f'{MARK}```\n{screen}\n```\n', text, count=1, flags=re.S)
        if not found:
            raise Failure(f'{PAGE} has no mark {MARK}')
        PAGE.write_text(new, encoding='utf-8')


def around_most_losses(stream):
    """Returns the start of the interval of SHOWN nanoseconds that contains the most lost packets."""
    events = stream['events']
    times = [t for t, flags in zip(events['t'], events['f']) if flags & 1]
    begins = [max(0, t - SHOWN // 3) for t in times]
    return max(begins, key=lambda begin: sum(begin <= t < begin + SHOWN for t in times))


def plot(write):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        file, *_ = plot_cases.lossy_run(folder)
        plot_cases.roci_plot(file, '-o', folder / 'page.html')
        begin = around_most_losses(plot_cases.busiest(json.loads(plot_cases.roci_plot(file, '--json'))))
        url = f'{(folder / "page.html").as_uri()}#from={begin}&to={begin + SHOWN}&theme=light'
        plot_cases.browse(url, SIZE, f'--screenshot={folder / "plot.png"}')
        to = PICTURE if write else pathlib.Path(tempfile.gettempdir()) / 'plot.png'
        shutil.copyfile(folder / 'plot.png', to)
    print(f'{to}: {begin} to {begin + SHOWN} ns')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=('top', 'plot'))
    parser.add_argument('--write', action='store_true')
    args = parser.parse_args()
    lacks = top_cases.no_terminal() if args.what == 'top' else plot_cases.no_browser()
    if lacks:
        sys.exit(lacks)
    {'top': top, 'plot': plot}[args.what](args.write)


if __name__ == '__main__':
    main()
