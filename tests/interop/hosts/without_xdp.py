#!/usr/bin/env python3
"""Runs a command as on a kernel without XDP. A seccomp filter fails the system calls that such a kernel does not have.

    without_xdp.py bpf|sockets COMMAND…

With `bpf` bpf(2) fails (ENOSYS). With `sockets` sockets of the family AF_XDP fail (EAFNOSUPPORT). x86-64 only.
"""
import ctypes
import errno
import os
import struct
import sys

LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06      # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
NUMBER, FIRST_ARGUMENT = 0, 16              # offsets in struct seccomp_data
ALLOW, ERROR = 0x7fff0000, 0x00050000
SOCKET, BPF, AF_XDP = 41, 321, 44
NO_NEW_PRIVS, SECCOMP, FILTER = 38, 22, 2

PROGRAMS = {
    'bpf': [(LOAD, 0, 0, NUMBER), (EQUAL, 0, 1, BPF), (RETURN, 0, 0, ERROR | errno.ENOSYS), (RETURN, 0, 0, ALLOW)],
    'sockets': [(LOAD, 0, 0, NUMBER), (EQUAL, 0, 3, SOCKET), (LOAD, 0, 0, FIRST_ARGUMENT), (EQUAL, 0, 1, AF_XDP),
                (RETURN, 0, 0, ERROR | errno.EAFNOSUPPORT), (RETURN, 0, 0, ALLOW)],
}


def main():
    steps = PROGRAMS[sys.argv[1]]
    code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(SECCOMP, FILTER, program, 0, 0) != 0:
        sys.exit(f'no seccomp filter: {os.strerror(ctypes.get_errno())}')
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == '__main__':
    main()
