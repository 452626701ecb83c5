#!/usr/bin/env python3
"""Compiles sources of a build folder without generating code, which finds the compiler's warnings in less time than a build. Uses the commands of the folder's
compile_commands.json. Ends with `N passed, M failed`.

    syntax.py BUILD FOLDER...     FOLDERs of the sources, for example stack
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def check(command):
    words = [word for word in shlex.split(command['command']) if word != 'ccache' and not word.startswith('-flto')]
    return command['file'], subprocess.run([words[0], '-fsyntax-only', *words[1:]], cwd=command['directory'], capture_output=True, text=True, check=False)


def main():
    build, *folders = sys.argv[1:]
    top = pathlib.Path(__file__).resolve().parent.parent
    wanted = {}
    for command in json.loads(pathlib.Path(build, 'compile_commands.json').read_text(encoding='utf-8')):
        path = pathlib.Path(command['directory'], command['file']).resolve()
        if any(path.is_relative_to(top / folder) for folder in folders):
            wanted.setdefault(path, command)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, result in pool.map(check, wanted.values()):
            if result.returncode != 0 or result.stderr:
                failed += 1
                print(f'FAIL {file}\n{result.stderr}', flush=True)
    print(f'{len(wanted) - failed} passed, {failed} failed')
    return 1 if failed or not wanted else 0


if __name__ == '__main__':
    sys.exit(main())
