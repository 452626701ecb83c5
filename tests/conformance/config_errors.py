"""Configurations that rocid must refuse. The exit code must be positive. The message must contain the file, the line
and the texts of the row."""
import os
import re
import subprocess
import tempfile

from lab import ROCID, Failure

# One row per case: the name, the configuration, the line of the error (None: any line), and patterns that the message
# must match.
TABLE = [
    ('an unknown key', '[engine]\ncuont = 1\n', 2, ('cuont', 'count')),
    ('an unknown section', '\n[egnine]\ncount = 1\n', 2, ('egnine', 'engine')),
    ('a number out of range', '[engine]\n\ncount = 1000\n', 3, ('count', '1000', r'1\.\.16')),
    ('a fraction out of range', '[fault]\ndrop = 1.5\n', 2, ('drop', r'1\.5', r'0\.0\.\.1\.0')),
    ('a word instead of a number', '[engine]\ncount = "two"\n', 2, ('count', 'two')),
    ('a choice that does not exist', '[engine]\nidle = "nap"\n', 2, ('idle', 'nap', 'spin', 'backoff')),
    ('a bad address', '[[device]]\nname = "roci0"\npeer = "roci0"\naddresses = ["10.77.0.300/24"]\n', None, (r'10\.77\.0\.300', 'addresses')),
    ('a bad MAC address', '[[device]]\nname = "roci0"\npeer = "roci0"\nmac = "02:zz:00:00:00:01"\n', None, ('mac', 'zz')),
    ('a bad MTU', '[[device]]\nname = "roci0"\npeer = "roci0"\nmtu = 1500\n', None, ('mtu', '1500', '4096')),
    ('no TOML at all', 'engine: 1\n', 1, ()),
]


def refused(config, line, words):
    with tempfile.TemporaryDirectory(prefix='roci-config-') as folder:
        path = os.path.join(folder, 'bad.toml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(config)
        try:
            done = subprocess.run([ROCID, '--config', path, '--socket', os.path.join(folder, 'rocid.sock')], capture_output=True, text=True,
                                  timeout=30, check=False)
        except subprocess.TimeoutExpired:
            raise Failure(f'rocid runs with this configuration:\n{config}') from None
    said = done.stderr + done.stdout
    if done.returncode <= 0:
        raise Failure(f'exit code {done.returncode} for:\n{config}\n{said}')
    for word in (rf'bad\.toml:{line or "[0-9]+"}\b', *words):
        if not re.search(word, said):
            raise Failure(f'the message must have /{word}/:\n{said}')


def file_that_is_not_there():
    done = subprocess.run([ROCID, '--config', '/nonexistent/rocid.toml'], capture_output=True, text=True, timeout=30, check=False)
    if done.returncode <= 0 or '/nonexistent/rocid.toml' not in done.stderr + done.stdout:
        raise Failure(f'exit code {done.returncode}: {done.stderr}{done.stdout}')


def sample_is_printed():
    """`rocid --print-config` must print a configuration and return 0."""
    sample = subprocess.run([ROCID, '--print-config'], capture_output=True, text=True, timeout=30, check=False)
    if sample.returncode != 0 or '[engine]' not in sample.stdout:
        raise Failure(f'rocid --print-config: exit code {sample.returncode}: {sample.stderr}')


CASES = {f'configuration: {name} is named with its line': (lambda c=config, n=line, w=words: refused(c, n, w)) for name, config, line, words in TABLE}
CASES['configuration: a file that is not there'] = file_that_is_not_there
CASES['configuration: rocid prints a sample'] = sample_is_printed
