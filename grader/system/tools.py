"""The programs that labs need, their versions, and how to install missing ones."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path

from grader.core.errors import ToolMissing
from grader.system import process
from grader.system.process import Patience

__all__ = ["gcc_major", "install_command", "processor", "require", "version"]

_PACKAGES = {
    "gcc": "gcc libc6-dev",
    "objcopy": "binutils",
    "addr2line": "binutils",
    "valgrind": "valgrind libc6-dbg",
}
_MANAGERS = {
    "apt-get": "sudo apt-get install -y {}",
    "dnf": "sudo dnf install -y {}",
    "pacman": "sudo pacman -S {}",
    "zypper": "sudo zypper install {}",
    "apk": "sudo apk add {}",
}


def install_command(tool: str) -> str:
    """Return the command that installs `tool` on this machine."""
    manager = next((name for name in _MANAGERS if shutil.which(name)), "apt-get")
    packages = _PACKAGES.get(tool, tool) if manager == "apt-get" else _PACKAGES.get(tool, tool).split()[0]
    return _MANAGERS[manager].format(packages)


def require(*tools: str) -> None:
    """Raise `ToolMissing` for the first of `tools` that is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            instead = ""
            if tool == "valgrind":
                instead = "Or grade without it, by the grader's own instruments only: --without-valgrind"
            raise ToolMissing(tool, install_command(tool), instead)


@cache
def version(tool: str) -> str:
    """Return the first line that `tool --version` prints; "" when it is not installed."""
    found = shutil.which(tool)
    if found is None:
        return ""
    done = process.run(
        [found, "--version"],
        cwd=Path("/"),
        limits=Patience(wall_seconds=30),
        environment={"PATH": "/usr/bin:/bin"},
    )
    return done.stdout.decode(errors="replace").partition("\n")[0]


@cache
def gcc_major() -> int:
    """Return gcc's major version, 0 when it is unknown."""
    done = process.run(
        ["gcc", "-dumpversion"],
        cwd=Path("/"),
        limits=Patience(wall_seconds=30),
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin"},
    )
    major = done.stdout.decode(errors="replace").strip().partition(".")[0]
    return int(major) if major.isdecimal() else 0


@cache
def processor() -> str:
    """Return the kernel's name of this machine's processor; "" when it has none."""
    named = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return named[1] if named is not None else ""
