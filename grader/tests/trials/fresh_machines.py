"""The README's two commands on machines that have python3 and git, but nothing else that the commands need.

    python -m grader.tests.trials.fresh_machines FOLDER                        all: bookworm, trixie and sid; hours
    python -m grader.tests.trials.fresh_machines FOLDER --suite sid --quick    one, and grading only; minutes

It needs root and debootstrap. Each machine is a root of its own in FOLDER, made once and reused; this machine's files
of /etc for names, packages and certificates are copied into it. Each command has namespaces of its own for
processes and mounts, so that it neither sees nor changes anything of this machine. Nothing else should compute
meanwhile.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from grader.tests.support.command import ROOT

_SUITES = ("bookworm", "trixie", "sid")
_COPIED = ("resolv.conf", "hosts", "pip.conf", "xdg/pip", "ssl/certs/ca-certificates.crt", "apt/apt.conf.d")
_USER = "student"
_WRONG = "submissions/paged_kv/wrong_answer/no_copy_on_write"
_GRADE = f"scripts/grade run {_WRONG}"
_MOST_PACKAGES, _MOST_MEGABYTES = 20, 70

# Make a folder ($1) the root of a machine on which a user ($2) runs a command ($3).
_ENTER = """
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/shm dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mkdir -p mnt/outside
pivot_root . mnt/outside
umount -l /mnt/outside
exec chroot "--userspec=$2" / sh -c "$3"
"""


class Step(NamedTuple):
    """A user, the command that this user types, and a function that checks its result."""

    who: str
    typed: str
    right: Callable[[subprocess.CompletedProcess[str]], bool]


def main() -> int:
    """Try all machines; return 0 when each command behaved as it must, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--suite", choices=_SUITES, action="append")
    parser.add_argument("--quick", action="store_true", help="not scripts/test")
    asked = parser.parse_args()
    wrong = [line for suite in asked.suite or _SUITES for line in _machine(suite, asked.folder / suite, asked.quick)]
    sys.stdout.write(("\n".join(wrong) or "each command did what it must") + "\n")
    return int(bool(wrong))


def _machine(suite: str, root: Path, quick: bool) -> Iterator[str]:  # noqa: FBT001 - of our own command line
    """Run all steps on one machine, and yield the problems."""
    _made(suite, root)
    has_tools = (root / "usr" / "bin" / "gcc").exists()  # from an earlier run
    for step in [*([] if has_tools else [_WITHOUT_TOOLS]), *_GRADING, *([] if quick else _TESTING)]:
        started = time.monotonic()
        done = _typed(root, step)
        line = f"{suite}, {step.who}: {step.typed}: exit code {done.returncode}, {time.monotonic() - started:.1f} s"
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        if not step.right(done):
            yield f"WRONG: {line}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def _made(suite: str, root: Path) -> None:
    """Make a new root, or reuse an existing one, with new clones of this repository for root and for a user."""
    if not (root / "etc" / "passwd").exists():
        included = "--include=python3,git,ca-certificates"
        _must("debootstrap", "--variant=minbase", included, suite, root)
    if not (root / "home" / _USER).exists():
        _must("chroot", root, "useradd", "--create-home", _USER)
    for name in _COPIED:
        source, target = Path("/etc", name), root / "etc" / name
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        elif source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source.resolve(), target)
    for home in ("root", f"home/{_USER}"):
        shutil.rmtree(root / home / "clone", ignore_errors=True)
        _must("git", "clone", "--quiet", "--no-hardlinks", ROOT, root / home / "clone")
    _must("chroot", root, "chown", "-R", f"{_USER}:{_USER}", f"/home/{_USER}")


def _typed(root: Path, step: Step) -> subprocess.CompletedProcess[str]:
    home = "/root" if step.who == "root" else f"/home/{_USER}"
    kept = {name: value for name, value in os.environ.items() if re.match("LANG$|PIP_|SSL_|https?_proxy$", name)}
    variables = {**kept, "HOME": home, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    return subprocess.run(
        [
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *("sh", "-euc", _ENTER, "sh", str(root), step.who, f"cd {home}/clone && {step.typed}"),
        ],
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _must(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


def _ended_with(code: int, done: subprocess.CompletedProcess[str]) -> bool:
    return done.returncode == code


def _names_what_to_type(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a user who may not install packages gets the command that installs what is missing."""
    return done.returncode == 3 and "sudo apt-get" in done.stderr.splitlines()[-1]


def _is_small(done: subprocess.CompletedProcess[str]) -> bool:
    packages, kilobytes = map(int, done.stdout.split()[:2])
    return packages <= _MOST_PACKAGES and kilobytes <= _MOST_MEGABYTES * 1024


_SIZE = "ls -d .venv/lib/python3*/site-packages/*.dist-info | grep -cv '/pip-\\|/paged_kv' && du -sk .venv"
_WITHOUT_TOOLS = Step(_USER, _GRADE, _names_what_to_type)
_GRADING: Sequence[Step] = (
    Step("root", _GRADE, partial(_ended_with, 1)),
    Step("root", _SIZE, _is_small),
    Step(_USER, _GRADE, partial(_ended_with, 1)),
    Step(_USER, f"{_GRADE} >/dev/null; {_GRADE}", partial(_ended_with, 1)),
)
_TESTING: Sequence[Step] = (
    Step("root", "scripts/test", partial(_ended_with, 0)),
    Step(_USER, "scripts/test", partial(_ended_with, 0)),
)

if __name__ == "__main__":
    sys.exit(main())
