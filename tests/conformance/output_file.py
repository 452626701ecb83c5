"""A temporary file for the output of a program. This process reads the file while the program writes it."""
import os
import tempfile


class OutputFile:
    """Pass an object of this class as `stdout` or `stderr` to subprocess.Popen.

    The program inherits the descriptor, so program and test share the file offset. A test that moves the offset to read
    makes the program write at the wrong place, which overwrites output. text() reads with pread(2), which uses no offset."""

    def __init__(self):
        self.file = tempfile.TemporaryFile()

    def fileno(self):
        return self.file.fileno()

    def text(self):
        """Returns all output until now."""
        return os.pread(self.fileno(), os.fstat(self.fileno()).st_size, 0).decode(errors='replace')
