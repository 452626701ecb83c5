#!/usr/bin/env python3
"""Tests that a test can read the output of a program at any time and loses nothing."""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from output_file import OutputFile  # noqa: E402

LINES = 5000


class Output(unittest.TestCase):
    def test_reading_does_not_change_where_the_program_writes(self):
        output = OutputFile()
        program = subprocess.Popen(['sh', '-c', f'n=0; while [ $n -lt {LINES} ]; do n=$((n + 1)); echo $n; done'], stdout=output)
        complete = ''.join(f'{n}\n' for n in range(1, LINES + 1))
        while program.poll() is None:
            self.assertTrue(complete.startswith(output.text()))
        self.assertEqual(output.text(), complete)

    def test_bytes_that_are_not_text_are_replaced(self):
        output = OutputFile()
        subprocess.run(['printf', 'a\\377b'], stdout=output, check=True)
        self.assertEqual(output.text(), 'a\ufffdb')


if __name__ == '__main__':
    unittest.main()
