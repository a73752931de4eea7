"""The programs that labs need, their versions, and how to install missing ones."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from grader.core.errors import ToolMissing
from grader.core.verdict import Tool
from grader.system import process
from grader.system.process import Patience

_MANAGERS = {
    "apt-get": "sudo apt-get install -y {}",
    "dnf": "sudo dnf install -y {}",
    "pacman": "sudo pacman -S {}",
    "zypper": "sudo zypper install {}",
    "apk": "sudo apk add {}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededTool:
    """A program that must be installed for gradings of a lab."""

    name: str
    """What is typed to start it; an absolute path for what must be this very file."""
    purpose: str
    title: str = ""
    """Its name in reports, where that is another one."""
    packages: str = ""
    """The packages that bring it on Debian; the first one has the same name elsewhere. Empty: that of its name."""
    makes: Tool | None = None
    """What its findings are, where it makes any."""
    instead: str = ""
    """What to do without it, in a sentence; empty: nothing."""

    @property
    def short_name(self) -> str:
        """Its name, wherever it lies: two machines have the same tools in different places."""
        return Path(self.name).name

    @property
    def install_command(self) -> str:
        """The command that installs it on this machine."""
        manager = next((name for name in _MANAGERS if shutil.which(name)), "apt-get")
        packages = self.packages or self.short_name
        return _MANAGERS[manager].format(packages if manager == "apt-get" else packages.split()[0])


def require(*tools: NeededTool) -> None:
    """Raise `ToolMissing` for the first of `tools` that is not installed."""
    for tool in tools:
        if shutil.which(tool.name) is None:
            raise ToolMissing(tool.name, tool.install_command, tool.instead)


@cache
def version(tool: str) -> str:
    """Return the first line that `tool --version` prints; "" when it is not installed."""
    program = shutil.which(tool)
    if program is None:
        return ""
    done = process.run(
        [program, "--version"],
        cwd=Path("/"),
        limits=Patience(wall_seconds=30),
        environment={"PATH": "/usr/bin:/bin"},
    )
    return done.stdout.decode(errors="replace").partition("\n")[0]
