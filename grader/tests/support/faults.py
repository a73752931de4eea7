"""Failing machines, for the trials of what a grader does on them: disks, limits, memory and tools that fail.

Everything happens in a mount namespace of its own, so no other process on this machine is affected. That needs root.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_MARK = "FAULT_TRIALS_NAMESPACE"

TOOLS = ("gcc", "cc1", "as", "ld", "ld.gold", "objcopy", "addr2line", "valgrind")

_WRAPPER = """#!/bin/sh
read -r mode <{switch} 2>/dev/null
case $mode in
exit) echo 'cannot do that' >&2; exit 1 ;;
garbage)
    echo '@#$%^&*()'
    while [ $# -gt 0 ]; do [ "$1" = -o ] && echo '@#$%^&*()' >"$2"; shift; done
    exit 0 ;;
hang) exec sleep 600 ;;
crash) kill -SEGV $$ ;;
kill) kill -KILL $$ ;;
late) {real} "$@" & sleep 0.4; kill -KILL $! 2>/dev/null; wait $!; exit $? ;;
esac
exec {real} "$@"
"""
MODES = ("exit", "garbage", "crash", "kill", "vanish", "hang")
"""How a tool can fail. With `late` it works for 0.4 s before it is killed."""


def in_namespace() -> Path | None:
    """Return the folder for everything in the private mount namespace; None outside of it."""
    place = os.environ.get(_MARK)
    return Path(place) if place else None


def own_namespace(arguments: list[str]) -> int | None:
    """Run this program again in a mount namespace of its own; return its exit code, None where it is not permitted."""
    command = ["unshare", "--mount", "--propagation", "private", "--"]
    with tempfile.TemporaryDirectory(prefix="fault-trials-", ignore_cleanup_errors=True) as place:
        Path(place).chmod(0o755)
        try:
            probe = [*command, "mount", "-t", "tmpfs", "none", "/mnt"]
            if subprocess.run(probe, capture_output=True, check=False).returncode:
                return None
        except OSError:
            return None
        return subprocess.run([*command, *arguments], env={**os.environ, _MARK: place}, check=False).returncode


def _mount(*words: str | Path) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


@contextlib.contextmanager
def disk(place: Path, options: str) -> Iterator[Path]:
    """Mount a memory-backed file system at `place` with these options, such as its size."""
    place.mkdir(exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"mode=1777,{options}", "none", place)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path, leave: int) -> None:
    """Fill the file system until only `leave` bytes are free."""
    system = os.statvfs(place)
    descriptor = os.open(place / "ballast", os.O_CREAT | os.O_WRONLY)
    try:
        os.posix_fallocate(descriptor, 0, max(1, system.f_bavail * system.f_frsize - leave))
    finally:
        os.close(descriptor)


@cache
def _path_of(tool: str) -> Path:
    """Return the path of a tool, or of the program that gcc starts under this name, whatever PATH is."""
    words = ["gcc", f"-print-prog-name={tool}"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    return Path(told) if tool == "cc1" or told.startswith("/usr/bin/") else Path("/usr/bin", tool)


def tools_replaced(place: Path) -> None:
    """Replace each tool by a wrapper that fails as its switch file says, permanently in this namespace."""
    place.mkdir(mode=0o755)
    cc1 = _path_of("cc1")
    for folder in (Path("/usr/bin"), cc1.parent):
        layers = place / f"layers{folder.name}"
        layers.mkdir()
        _mount("-t", "tmpfs", "none", layers)
        for layer in ("upper", "work"):
            (layers / layer).mkdir(mode=0o755)
        _mount(
            "-t", "overlay", "-o", f"lowerdir={folder},upperdir={layers}/upper,workdir={layers}/work", "none", folder
        )
    switches = Path("/usr/bin/faults")  # everything inside the sandbox may read here
    switches.mkdir(mode=0o755)
    for name in TOOLS:
        path = _path_of(name)
        if not path.exists():  # not every system has every linker
            continue
        real = path.with_name(f"real-{name}")
        if path.is_symlink():
            real.symlink_to(path.readlink())
            path.unlink()
        else:
            path.rename(real)
        if Path(f"{path}.bin").exists():  # the program that a script of the same name starts
            Path(f"{real}.bin").symlink_to(f"{path}.bin")
        path.write_text(_WRAPPER.format(switch=switches / name, real=real), encoding="utf-8")
        path.chmod(0o755)
        (switches / name).write_text("works\n", encoding="utf-8")


@contextlib.contextmanager
def tool(name: str, mode: str) -> Iterator[None]:
    """Make a tool fail in this way inside the context; do nothing when the tool does not exist."""
    switch = Path("/usr/bin/faults", name)
    if not switch.exists():
        yield
        return
    path = _path_of(name)
    if mode == "vanish":
        path.rename(path.with_name(f"gone-{name}"))
    else:
        switch.write_text(f"{mode}\n", encoding="utf-8")
    try:
        yield
    finally:
        if mode == "vanish":
            path.with_name(f"gone-{name}").rename(path)
        else:
            switch.write_text("works\n", encoding="utf-8")


@contextlib.contextmanager
def memory_group(megabytes: int) -> Iterator[Path | None]:
    """Make a control group with this much memory and yield its file for process ids; None where that is impossible."""
    lines = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    own = next((line.split(":", 2)[2] for line in lines if line.split(":")[1] == "memory"), None)
    root, limit = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
    if own is None:
        own, root, limit = lines[-1].split(":", 2)[2], Path("/sys/fs/cgroup"), "memory.max"
    group = Path(f"{root}{own}", f"fault-trial-{os.getpid()}-{megabytes}")
    try:
        group.mkdir()
        (group / limit).write_text(str(megabytes << 20), encoding="ascii")
    except OSError:
        yield None
        return
    try:
        yield group / "cgroup.procs"
    finally:
        for _ in range(60):  # what the kernel left running of the batch ends within seconds
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.5)
