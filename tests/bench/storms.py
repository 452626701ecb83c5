#!/usr/bin/env python3
"""The attackers of isolation.py that do not use perftest: storms.py register | connect | doorbell. An attacker runs until it is killed."""
import ctypes
import mmap
import os
import struct
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))
ACCESS = 7  # local write, remote write, remote read
SESSIONS = 30


def verbs():
    lib = ctypes.CDLL("libibverbs.so.1")
    for name, result, arguments in (("ibv_get_device_list", ctypes.POINTER(ctypes.c_void_p), [ctypes.c_void_p]),
                                    ("ibv_open_device", ctypes.c_void_p, [ctypes.c_void_p]), ("ibv_close_device", ctypes.c_int, [ctypes.c_void_p]),
                                    ("ibv_alloc_pd", ctypes.c_void_p, [ctypes.c_void_p]),
                                    ("ibv_reg_mr", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]),
                                    ("ibv_dereg_mr", ctypes.c_int, [ctypes.c_void_p])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib, lib.ibv_get_device_list(None)[0]


def register():
    lib, device = verbs()
    pd = lib.ibv_alloc_pd(lib.ibv_open_device(device))
    buffer = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    while True:
        mr = lib.ibv_reg_mr(pd, address, len(buffer), ACCESS)
        if mr:
            lib.ibv_dereg_mr(mr)


def connect():
    lib, device = verbs()
    while True:
        context = lib.ibv_open_device(device)
        if context:
            lib.ibv_close_device(context)


def doorbell():
    from badinput import OP_OPEN_DEVICE, Client  # in tests/conformance
    rocid = types.SimpleNamespace(socket=os.environ["ROCI_SOCKET"])
    pages = []
    for _ in range(SESSIONS):
        client = Client(rocid)
        client.hello()
        fds = client.request(OP_OPEN_DEVICE, struct.pack("<II", 0, 0))[3]
        pages.append((client, mmap.mmap(fds[2], os.fstat(fds[2]).st_size)))
    while True:
        for _, page in pages:
            page[:] = b"\xff" * len(page)


if __name__ == "__main__":
    {"register": register, "connect": connect, "doorbell": doorbell}[sys.argv[1]]()
