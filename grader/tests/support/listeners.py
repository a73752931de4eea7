"""Decoys for programs that reach beyond files and processes: listening sockets, and objects that no process owns."""

from __future__ import annotations

import contextlib
import ctypes
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

_PORTS = range(47_611, 47_614)
"""Samples try all these ports; ports that are in use are left out."""

_KEY = 0x4057113
"""The key of the objects that samples try to leave in System V's tables."""
_QUEUE = b"/hostile_mark"


class Ears:
    """Sockets of all kinds, on the loopback interface and in `folder`, that note when they are contacted."""

    def __init__(self, folder: Path) -> None:
        self._ears = contextlib.ExitStack()
        self._open: dict[str, socket.socket] = {}
        for type_name, kind in {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM}.items():
            for family, host in {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}.items():
                for port in _PORTS:
                    self._listen(f"{host} {port} {type_name}", family, kind, (host, port))
        self._listen("path", socket.AF_UNIX, socket.SOCK_STREAM, str(folder / "hostile_canary.socket"))
        (folder / "hostile_canary.socket").chmod(0o777)
        self._listen("name", socket.AF_UNIX, socket.SOCK_STREAM, "\0hostile_canary")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ears.close()

    @property
    def kinds(self) -> set[str]:
        """The kinds of sockets that could be opened, each on at least one port."""
        return {name.split()[-1] for name in self._open}

    def heard(self) -> list[str]:
        """Return the names of the sockets that got a connection or data since they were opened."""
        return [name for name, ear in self._open.items() if _heard(ear)]

    def _listen(self, name: str, family: int, kind: int, address: tuple[str, int] | str) -> None:
        ear = self._ears.enter_context(socket.socket(family, kind))
        ear.setblocking(False)
        with contextlib.suppress(OSError):  # the address is in use, or there is no IPv6
            ear.bind(address)
            if kind == socket.SOCK_STREAM:
                ear.listen()
            self._open[name] = ear


def _heard(ear: socket.socket) -> bool:
    try:
        if ear.type == socket.SOCK_STREAM:
            ear.accept()[0].close()
        else:
            ear.recv(1)
    except BlockingIOError:
        return False
    return True


def left_behind() -> Iterator[str]:
    """Remove what a sample left in System V's tables and among message queues, and yield a line for each object."""
    libc = ctypes.CDLL(None, use_errno=True)
    removals: dict[str, Callable[[int], Any]] = {
        "shm": lambda number: libc.shmctl(number, 0, None),
        "sem": lambda number: libc.semctl(number, 0, 0),
        "msg": lambda number: libc.msgctl(number, 0, None),
    }
    for kind, remove in removals.items():
        table = Path("/proc/sysvipc") / kind
        rows = table.read_text(encoding="ascii").splitlines()[1:] if table.is_file() else []
        for key, number in (map(int, row.split()[:2]) for row in rows):
            if key == _KEY:
                remove(number)
                yield f"{kind} {number}"
    if libc.mq_unlink(_QUEUE) == 0:
        yield "a message queue"
