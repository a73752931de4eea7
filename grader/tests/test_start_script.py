"""`scripts/grade`: it asks set-up whether all is ready, unless nothing can have changed since set-up said so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from grader.tests.support.command import ROOT

_TOOLS = ("gcc", "ld", "objcopy", "valgrind")
_SETUP = '#!/bin/sh\necho "setup $*" >>"${0%/*}/../asked"\nif [ -e "${0%/*}/../broken" ]; then exit 3; fi\n'
_PYTHON = '#!/bin/sh\necho "$@"\n'


def program(path: Path, text: str = "#!/bin/sh\n") -> Path:
    """Write a script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


@dataclass(slots=True, kw_only=True)
class Clone:
    """A clone with our `scripts/grade`, in which set-up only writes down that it was asked."""

    root: Path
    tools: Path
    """The folder of the tools, the first on PATH."""
    variables: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Path) -> Clone:
        """Make one in a new folder."""
        root, tools = place / "clone", place / "tools"
        (root / "scripts").mkdir(parents=True)
        shutil.copy(ROOT / "scripts" / "grade", root / "scripts")
        program(root / "scripts" / "setup", _SETUP)
        (root / ".ci").mkdir()
        (root / ".ci" / "grading.lock").write_text("a==1\n")
        (root / "pyproject.toml").write_text("[project]\n")
        needs = root / "grader" / "labs" / "offload" / "needs.txt"
        needs.parent.mkdir(parents=True)
        needs.write_text("numpy\n")
        (root / ".venv" / ".setup").mkdir(parents=True)
        (root / ".venv" / "bin").mkdir()
        (root / ".venv" / "bin" / "python").symlink_to(program(place / "python3.11", _PYTHON))
        for tool in _TOOLS:
            program(tools / tool)
        return cls(root=root, tools=tools, variables={"PATH": f"{tools}:/usr/bin:/bin"})

    def asks(self, *words: str, start: Path | None = None, code: int = 0) -> list[str]:
        """Run `grade` with these words, and return what set-up was asked meanwhile."""
        log = self.root / "asked"
        log.unlink(missing_ok=True)
        done = subprocess.run(
            [str(start or self.root / "scripts" / "grade"), *words],
            cwd=self.root.parent,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stderr) == (code, "")
        assert done.stdout == ("" if code else " ".join(["-I -m grader", *words]) + "\n")
        return log.read_text().splitlines() if log.exists() else []

    def settled(self) -> None:
        """Start it until nothing is asked. It takes longer than a tick of the file system's clock."""
        self.asks("run")
        assert self.asks("run") == []


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """A clone that is ready."""
    new = Clone.of(tmp_path)
    assert new.asks("run", ".") == ["setup "]
    new.settled()
    return new


def replaced(path: Path, text: str) -> None:
    """Put another file in the place of this one, with the same times of access and writing."""
    status = path.stat()
    path.write_text(text)
    path.chmod(status.st_mode)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def relinked(path: Path, target: Path) -> None:
    """Let a link lead elsewhere."""
    path.unlink()
    path.symlink_to(target)


def other_python(clone: Clone) -> None:
    """Another interpreter, older than all else."""
    other = program(clone.root.parent / "python3.10", _PYTHON)
    os.utime(other, (1_000_000_000, 1_000_000_000))
    clone.settled()
    relinked(clone.root / ".venv" / "bin" / "python", other)


_CHANGES: Mapping[str, Callable[[Clone], object]] = {
    "an older lock": lambda clone: replaced(clone.root / ".ci" / "grading.lock", "a==2\n"),
    "a new lock": lambda clone: (clone.root / ".ci" / "watch.lock").write_text("b==1\n"),
    "the project": lambda clone: replaced(clone.root / "pyproject.toml", "[changed]\n"),
    "set-up": lambda clone: replaced(clone.root / "scripts" / "setup", f"{_SETUP}# changed\n"),
    "what a lab needs": lambda clone: replaced(clone.root / "grader/labs/offload/needs.txt", "dask\n"),
    "another interpreter": other_python,
    "a new gcc": lambda clone: replaced(clone.tools / "gcc", "#!/bin/sh\n# another\n"),
    "no stamp": lambda clone: (clone.root / ".venv" / ".setup" / "ready").unlink(),
    "an empty stamp": lambda clone: (clone.root / ".venv" / ".setup" / "ready").write_text(""),
}


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_set_up_looks_after_a_change(clone: Clone, change: Callable[[Clone], object]) -> None:
    """Once, if it finds all as it must be."""
    change(clone)

    assert clone.asks("run") == ["setup "]
    clone.settled()


@pytest.mark.parametrize("tool", _TOOLS)
def test_a_tool_that_is_gone_is_missed(clone: Clone, tool: str, tmp_path: Path) -> None:
    """Also one that is found elsewhere now."""
    clone.variables["PATH"] = f"{clone.tools}:{clone.root.parent / 'system'}"
    for name in ("sh", "find", "readlink", "mv", "rm", "cat"):
        program(clone.root.parent / "system" / name).unlink()
        (clone.root.parent / "system" / name).symlink_to(str(shutil.which(name)))
    clone.settled()
    (clone.tools / tool).unlink()
    assert clone.asks("run") == ["setup "]
    if tool == "valgrind":  # set-up warns each time
        assert clone.asks("run") == ["setup "]

    program(tmp_path / "more" / tool)
    clone.variables["PATH"] += f":{tmp_path / 'more'}"
    assert clone.asks("run") == ["setup "]
    clone.settled()


def test_a_moved_clone_and_a_copy_are_looked_at(clone: Clone, tmp_path: Path) -> None:
    """The environment has the clone's path in it."""
    copy = tmp_path / "copy" / "clone"
    shutil.copytree(clone.root, copy, symlinks=True)
    copied = Clone(root=copy, tools=clone.tools, variables=clone.variables)
    assert copied.asks("run") == ["setup "]

    moved = tmp_path / "moved"
    clone.root.rename(moved)
    clone.root = moved
    assert clone.asks("run") == ["setup "]
    clone.settled()


def test_what_a_lab_needs_besides_is_asked_for_once(clone: Clone) -> None:
    """And does not disturb the others."""
    assert clone.asks("run", "x/offload.py") == ["setup --numpy"]
    clone.asks("run", "x/offload.py")
    assert clone.asks("run", "x/offload.py") == []
    assert clone.asks("run", "llm_memory.c") == []


def test_a_set_up_that_fails_is_asked_again(clone: Clone) -> None:
    """And nothing is graded."""
    (clone.root / "broken").touch()
    replaced(clone.root / "pyproject.toml", "[changed]\n")
    assert clone.asks("run", code=3) == ["setup "]
    assert clone.asks("run", code=3) == ["setup "]

    (clone.root / "broken").unlink()
    assert clone.asks("run") == ["setup "]
    clone.settled()
    assert [path.name for path in (clone.root / ".venv" / ".setup").iterdir()] == ["ready"]


def test_it_is_started_from_anywhere(clone: Clone, tmp_path: Path) -> None:
    """Through a link, and by another's shell."""
    link = tmp_path / "bin" / "grade"
    link.parent.mkdir()
    link.symlink_to(clone.root / "scripts" / "grade")

    assert clone.asks("run", start=link) == []
    assert clone.asks("run", start=Path("clone/scripts/grade")) == []


def test_no_other_program_is_started(clone: Clone, tmp_path: Path) -> None:
    """None that lies first on PATH, such as a student's."""
    for name in ("find", "readlink", "dirname", "cat"):
        program(tmp_path / "theirs" / name, "#!/bin/sh\necho STARTED >&2\n")
    clone.variables["PATH"] = f"{tmp_path / 'theirs'}:{clone.variables['PATH']}"

    assert clone.asks("run") == []


def test_real_set_up_forgets_before_it_changes_anything() -> None:
    """A set-up that is killed must not look ready."""
    text = (ROOT / "scripts" / "setup").read_text(encoding="utf-8")
    step = text[text.index("\nstep() {") : text.index('"make_$1"')]

    assert '"$state"/ready*' in step
