#!/usr/bin/env python3
"""storms.py UID: the attacker of isolation.py that writes doorbells in a way in which no library does. It changes its
user to UID, opens sessions, and rings all doorbells of all sessions until it is killed."""
import mmap
import os
import struct
import sys
import types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "conformance"))
from badinput import OP_OPEN_DEVICE, Client  # noqa: E402

SESSIONS = 30


def main():
    parent = os.getppid()
    # Another user may have no right to execute this interpreter. So this program changes its own user after the start.
    os.setgroups([])
    os.setresgid(*[int(sys.argv[1])] * 3)
    os.setresuid(*[int(sys.argv[1])] * 3)
    rocid = types.SimpleNamespace(socket=os.environ["ROCI_SOCKET"])
    pages = []
    for _ in range(SESSIONS):
        client = Client(rocid)
        client.hello()
        fds = client.request(OP_OPEN_DEVICE, struct.pack("<II", 0, 0))[3]
        pages.append((client, mmap.mmap(fds[2], os.fstat(fds[2]).st_size)))
    while os.getppid() == parent:
        for _, page in pages:
            page[:] = b"\xff" * len(page)


if __name__ == "__main__":
    main()
