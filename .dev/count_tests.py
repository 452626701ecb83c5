#!/usr/bin/env python3
"""Counts the cases in a log of `meson test`. If the output of a test contains GoogleTest's summary, the counts come from this summary. Otherwise the
test counts as one case.

    count_tests.py BUILD/meson-logs/testlog.json
"""
import json
import re
import sys

# The output of GoogleTest ends with "[  PASSED  ] 12 tests." and, if cases failed, with "[  FAILED  ] 1 test, listed below:".
COUNT = r'^\[ *%s *\] (\d+) tests?[.,]'


def counts_of(test):
    """Returns (passed, failed, skipped) of one entry of the log. A failed test without failed cases, for example after a crash, adds one failed case."""
    output = test.get('stdout') or ''
    found = {word: re.search(COUNT % word, output, re.M) for word in ('PASSED', 'FAILED', 'SKIPPED')}
    passed, failed, skipped = (int(m[1]) if m else 0 for m in found.values())
    ok = test['result'] in ('OK', 'EXPECTEDFAIL')
    if not ok and not failed:
        failed = 0 if test['result'] == 'SKIP' else 1
        skipped += test['result'] == 'SKIP'
    elif ok and not found['PASSED']:
        passed = 1
    return passed, failed, skipped


def main():
    with open(sys.argv[1], encoding='utf-8') as log:
        rows = [counts_of(json.loads(line)) for line in log if line.strip()]
    passed, failed, skipped = (sum(column) for column in zip(*rows)) if rows else (0, 0, 0)
    print(f'{passed} passed, {failed} failed' + (f', {skipped} skipped' if skipped else ''))


if __name__ == '__main__':
    main()
