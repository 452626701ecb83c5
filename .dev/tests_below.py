#!/usr/bin/env python3
"""Prints the build targets or the names of Meson tests. A test is selected if its program or script is below a FOLDER and not below a -FOLDER.

    tests_below.py BUILD_FOLDER --targets|--names FOLDER… [-FOLDER…]
"""
import json
import os
import pathlib
import subprocess
import sys


def below(file, folder):
    return file == folder or file.startswith(folder.rstrip('/') + '/')


def chosen(file, folders):
    wanted = [f for f in folders if not f.startswith('-')]
    unwanted = [f[1:] for f in folders if f.startswith('-')]
    return any(below(file, f) for f in wanted) and not any(below(file, f) for f in unwanted)


def main():
    build, what, folders = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    sources = pathlib.Path(__file__).resolve().parent.parent
    tests = json.loads(subprocess.check_output(['meson', 'introspect', '--tests', build]))
    out = []
    for test in tests:
        files = [pathlib.Path(os.path.normpath(part)) for part in test['cmd'] if os.path.isabs(part)]
        built = [f.relative_to(build).as_posix() for f in files if f.is_relative_to(build)]
        scripts = [f.relative_to(sources).as_posix() for f in files if f.is_relative_to(sources) and not f.is_relative_to(build)]
        if any(chosen(f, folders) for f in built + scripts):
            out += built if what == '--targets' else [test['name']]
    print('\n'.join(dict.fromkeys(out)))
    return 0 if out else 1


if __name__ == '__main__':
    sys.exit(main())
