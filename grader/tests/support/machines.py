"""Machines with less protection than this one, and an ordinary user instead of root, for the tests of hostile programs.

A machine with less protection is this one under a filter that refuses the system calls of the missing protection.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass

_USER = 61_007  # belongs to no account
_CALLS = {
    "x86_64": {"landlock": 444, "seccomp": 317, "mount": 165, "prctl": 157, "setresuid": 117},
    "aarch64": {"landlock": 444, "seccomp": 277, "mount": 40, "prctl": 167, "setresuid": 147},
}
_NEW_IPC = 0x0800_0000  # CLONE_NEWIPC
_SET_SECCOMP, _NO_NEW_RIGHTS, _FILTER = 22, 38, 2  # PR_*, SECCOMP_MODE_FILTER
_LOAD, _IF, _RETURN, _ALLOW, _ERROR = 0x20, 0x15, 0x06, 0x7FFF0000, 0x50000  # of BPF, SECCOMP_RET_*


@dataclass(frozen=True, slots=True)
class Machine:
    """The calls that the kernel refuses, whether an ordinary user grades, and which of `sandbox.LEVELS` results."""

    name: str
    refused: tuple[str, ...]
    user: bool
    level: str


_KINDS = (
    ("limits", ("landlock", "seccomp", "mount"), "limits"),
    ("confine-without-landlock", ("landlock", "mount"), "confine"),
    ("confine", ("mount",), "confine"),
    ("bubblewrap", (), "bubblewrap"),
)
MACHINES = tuple(
    Machine(f"{name}{'-as-user' if user else ''}", refused, user, level)
    for name, refused, level in _KINDS
    for user in (False, True)
)

ROOT_ONLY = Machine("limits-as-root-only", ("landlock", "seccomp", "mount", "setresuid"), False, "limits")
"""A container whose root may not become anybody else: limits of processes do not hold there."""


def become(machine: Machine) -> None:
    """In the child: take the machine's user and less protection, with System V tables of its own."""
    if ctypes.CDLL(None).unshare(_NEW_IPC):
        raise OSError("no namespace for System V's objects")
    if machine.user:
        os.setgroups([])
        os.setgid(_USER)
        os.setuid(_USER)
    _refuse(machine.refused)


def _refuse(names: Sequence[str]) -> None:
    """Install a filter under which the kernel seems to lack these calls; it is permanent, for children too."""
    if not names:
        return
    calls = _CALLS[os.uname().machine]
    code = [(_LOAD, 0, 0, 0)]  # the number of the call
    for name in names:
        code += [(_IF, 0, 1, calls[name]), (_RETURN, 0, 0, _ERROR | errno.ENOSYS)]
    if "seccomp" in names:  # its older name is prctl(PR_SET_SECCOMP, ...)
        refused = (_RETURN, 0, 0, _ERROR | errno.EINVAL)
        code += [(_IF, 0, 3, calls["prctl"]), (_LOAD, 0, 0, 16), (_IF, 0, 1, _SET_SECCOMP), refused]
    code.append((_RETURN, 0, 0, _ALLOW))
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *one) for one in code))
    libc = ctypes.CDLL(None, use_errno=True)
    header = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(code), ctypes.addressof(program)))
    if libc.prctl(_NO_NEW_RIGHTS, 1, 0, 0, 0) or libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "no filter")
