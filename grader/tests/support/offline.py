"""`python -m grader.tests.support.offline COMMAND...`: run a program and its children without network or namespaces.

Where the kernel permits no namespaces, none can be used to disable the network. A seccomp filter works everywhere: it
refuses to create internet sockets (IPv4 and IPv6) and namespaces.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_MACHINES = {"x86_64": (0xC000003E, 41, 56, 272), "aarch64": (0xC00000B7, 198, 220, 97)}
"""By architecture: its number in the kernel's audit interface, and the call numbers of socket, clone and unshare."""
_CLONE3 = 435
_NAMESPACES = 0x7E020000
"""All flags of clone that make a namespace."""
_LOAD, _EQUAL, _ANY, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2

CAN = platform.machine() in _MACHINES
"""Whether the system call numbers of this machine are known."""


def main() -> None:
    """Install the filter, then replace this process by the program."""
    program = b"".join(struct.pack("=HBBI", *line) for line in _lines())
    kept = ctypes.create_string_buffer(program, len(program))
    given = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(kept)))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (_PR_SET_SECCOMP, _FILTER, given, 0, 0)):
        if libc.prctl(*words) != 0:
            sys.exit(f"no filter: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


def _lines() -> list[tuple[int, int, int, int]]:
    """Return the lines of the filter: instruction, lines to skip when it is true and when it is false, value."""
    architecture, socket, clone, unshare = _MACHINES[platform.machine()]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, 11, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_EQUAL, 10, 0, unshare),
        (_EQUAL, 10, 0, _CLONE3),
        (_EQUAL, 2, 0, socket),
        (_EQUAL, 4, 0, clone),
        (_RETURN, 0, 0, _ALLOW),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 4, 0, 2),  # AF_INET
        (_EQUAL, 3, 2, 10),  # AF_INET6
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_ANY, 1, 0, _NAMESPACES),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE | errno.EPERM),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),  # then libc calls clone
    ]


if __name__ == "__main__":
    main()
