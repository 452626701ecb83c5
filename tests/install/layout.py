#!/usr/bin/env python3
"""Checks `meson install` into a folder. All files must exist, the man pages and the systemd unit must match the programs, and the installed roci
must find its rocid.

    layout.py BUILD
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import in_ci

BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else os.environ.get('BUILD', 'build')).resolve()
CASES = []


def case(function):
    CASES.append(function)
    return function


def run(*words, **options):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, f'{words}: {done.returncode}\n{done.stdout}{done.stderr}'
    return done.stdout


def paths():
    options = {o['name']: o['value'] for o in json.loads(run('meson', 'introspect', '--buildoptions', BUILD))}
    return {name: os.path.join(options['prefix'], options[name]) for name in ('prefix', 'bindir', 'sbindir', 'libdir', 'datadir', 'mandir', 'sysconfdir')}


@case
def everything_is_there(root, at):
    wanted = [
        at['bindir'] + '/roci', at['sbindir'] + '/rocid', at['sbindir'] + '/rocinante-hugepages',
        at['libdir'] + '/rocinante/libibverbs.so.1', at['libdir'] + '/rocinante/librdmacm.so.1', at['libdir'] + '/rocinante/librocinante-view.so', at['libdir'] + '/pkgconfig/rocinante.pc',
        at['prefix'] + '/lib/systemd/system/rocid.service', at['prefix'] + '/lib/sysusers.d/rocinante.conf',
        at['sysconfdir'] + '/rocinante/rocinante.toml',
        at['mandir'] + '/man1/roci.1', at['mandir'] + '/man8/rocid.8', at['mandir'] + '/man5/rocinante.toml.5',
        at['datadir'] + '/bash-completion/completions/roci', at['datadir'] + '/bash-completion/completions/rocid',
        at['datadir'] + '/doc/rocinante/README.md', at['datadir'] + '/doc/rocinante/docs/verbs.md',
        at['datadir'] + '/doc/rocinante/containers/compose.yaml',
    ]
    missing = [w for w in wanted if not (root / w.lstrip('/')).exists()]
    assert not missing, f'not installed: {missing}'


@case
def no_library_stands_in_the_linkers_way(root, at):
    beside = [p.name for p in (root / at['libdir'].lstrip('/')).glob('lib*.so*')]
    assert not beside, f'in the folder that ld.so searches: {beside}'


@case
def the_unit_names_what_was_installed(root, at):
    unit = (root / at['prefix'].lstrip('/') / 'lib/systemd/system/rocid.service').read_text(encoding='utf-8')
    words = re.search(r'^ExecStart=(\S+) --config (\S+)', unit, re.M).groups()
    for word in words:
        assert (root / word.lstrip('/')).exists(), f'the unit names {word}'


def options_in(text):
    return set(re.findall(r'(?<![\w-])--[a-z][a-z-]+', text))


@case
def pages_have_every_option_and_variable(root, at):
    man = root / at['mandir'].lstrip('/')
    for program, page, commands in ((at['bindir'] + '/roci', 'man1/roci.1', ['run', 'status', 'stat', 'top', 'why', 'pcap', 'plot', 'up', 'down', 'doctor', 'view']), (at['sbindir'] + '/rocid', 'man8/rocid.8', [])):
        text = (man / page).read_text(encoding='utf-8').replace('\\-', '-')
        program = root / program.lstrip('/')
        for words in [[]] + [[c] for c in commands]:
            missing = options_in(run(program, *words, '--help')) - options_in(text) - {'--help'}
            assert not missing, f'{page} lacks {missing}'
    text = (man / 'man1/roci.1').read_text(encoding='utf-8')
    for section in ('WHICH ROCID', 'WHAT THE PROGRAM SEES', 'CONTAINERS', 'EXAMPLES', 'FILES', 'EXIT STATUS'):
        assert f'.SH "{section}"' in text, section
    for variable in ('ROCI_SOCKET', 'ROCI_LOG', 'ROCI_ADOPT'):
        assert variable in text and variable in run(root / at['bindir'].lstrip('/') / 'roci', '--help'), variable
    keys = set(re.findall(r'^#? ?(\w+) = ', run(root / at['sbindir'].lstrip('/') / 'rocid', '--print-config'), re.M))
    page = (man / 'man5/rocinante.toml.5').read_text(encoding='utf-8')
    assert len(keys) > 20 and not [k for k in keys if f'.B {k} = ' not in page], f'rocinante.toml.5 lacks keys of {keys}'


@case
def examples_of_the_page_have_existing_options(root, at):
    text = (root / at['mandir'].lstrip('/') / 'man1/roci.1').read_text(encoding='utf-8').replace('\\-', '-')
    examples = re.findall(r'^\.B (roci .*)$', text.split('.SH "EXAMPLES"')[1].split('.SH')[0], re.M)
    assert len(examples) >= 4, examples
    for command, words in (c for e in examples for c in re.findall(r'roci (\w+)([^;|]*)', e)):
        own = set(re.findall(r'(?<!\S)--?[a-z][a-z-]*', words.split(' -- ')[0]))
        shown = run(root / at['bindir'].lstrip('/') / 'roci', command, '--help')
        assert all(re.search(rf'(?<![\w-]){option}(?![\w-])', shown) for option in own), f'roci {command}: {own}'


@case
def roci_finds_the_rocid_of_the_installation(root, at):
    with tempfile.TemporaryDirectory() as runtime:
        environment = {'PATH': '/usr/bin:/bin', 'XDG_RUNTIME_DIR': runtime, 'HOME': '/nonexistent'}
        roci = root / at['bindir'].lstrip('/') / 'roci'
        out = run(roci, 'run', '--', 'sh', '-c', 'ibv_devices; echo "$LD_LIBRARY_PATH"', env=environment)
        assert 'roci0' in out, out
        folders = out.splitlines()[-1].split(':')
        assert folders[0].startswith(str(root)), f'libraries of another installation: {folders}'


@case
def container_examples_mount_what_roci_view_writes(root, at):
    with tempfile.TemporaryDirectory() as folder:
        roci = root / at['bindir'].lstrip('/') / 'roci'
        environment = {'PATH': '/usr/bin:/bin', 'XDG_RUNTIME_DIR': folder, 'HOME': '/nonexistent'}
        said = run(roci, 'run', '--', roci, 'view', f'{folder}/view', env=environment)
        parts = re.findall(rf'-v {folder}/view/(\S+):(\S+):ro', said)
        written = {str(p.relative_to(f'{folder}/view')) for p in pathlib.Path(f'{folder}/view').glob('*/*')}
    assert len(parts) == 3 and {'sys/class', 'dev/infiniband', 'lib/libibverbs.so.1', 'lib/librdmacm.so.1'} <= written, f'{parts} {written}'
    examples = root / at['datadir'].lstrip('/') / 'doc/rocinante/containers'
    forms = {'compose.yaml': '- /run/rocinante-view/{}:{}:ro', 'sidecar.yaml': 'subPath: {}, mountPath: {}, readOnly: true}}',
             'daemonset.yaml': 'subPath: {}, mountPath: {}, readOnly: true}}'}
    for name, form in forms.items():
        text = (examples / name).read_text(encoding='utf-8')
        missing = [part for part in parts if form.format(*part) not in text]
        assert not missing and '/opt/rocinante' in text and parts[-1][1] == '/opt/rocinante', f'{name} lacks {missing}'
        commands = re.findall(r'command: \[(roci|rocid), ([^\]]*)\]', text)
        assert commands, name
        for program, words in commands:
            program = root / at['bindir' if program == 'roci' else 'sbindir'].lstrip('/') / program
            shown = run(program, *words.split(', ')[:1 if program.name == 'roci' else 0], '--help')
            assert all(re.search(rf'(?<![\w-]){word}(?![\w-])', shown) for word in words.split(', ') if word.startswith('--')), f'{name}: {program.name} {words}'


def main():
    at = paths()
    failed = skipped = 0
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        run('meson', 'install', '-C', BUILD, '--no-rebuild', '--quiet', '--destdir', root)
        for test in CASES + in_ci.CASES:
            try:
                if why := test(root, at):
                    skipped += 1
                print(f'SKIP {test.__name__}: {why}' if why else f'ok   {test.__name__}')
            except (AssertionError, subprocess.TimeoutExpired, OSError) as e:
                failed += 1
                print(f'FAIL {test.__name__}: {e}')
    print(f'{len(CASES + in_ci.CASES) - failed - skipped} passed, {failed} failed, {skipped} skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
