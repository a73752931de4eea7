"""`python -m grader.tests.trials.fault_trials [--only NAME]... [--class N]`: can machine trouble change a verdict?

Each trial grades a few labelled samples as a batch while something fails, from the start or after the first results,
and then runs the same command once more without trouble. What must hold: each record of either run has the verdict and
the points of an undisturbed grading; whoever has no record makes the exit code 3, and has one after the second run.
Prints a table; exit code 1 when a trial does not hold. It wants root: the rest of it needs mounts. NAME is a trial's
name, or a part of several. With N only the first N samples are graded. All of it takes a quarter of an hour on two idle
cores; test_faults.py does a few of the trials with a small class.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from grader.classroom.store import open_store
from grader.tests.support import faults
from grader.tests.support.classes import finished
from grader.tests.support.command import FEW, ROOT, SAMPLES, command, environment
from grader.tests.support.faults import MODES, TOOLS, disk, memory_group, own_namespace, tool

_SAMPLES = (
    *("accepted/course_header_types", "compile_error/helper_from_other_file", "memory_error/destroy_frees_pool"),
    *("compile_error/missing_semicolon", "wrong_answer/no_copy_on_write"),
)
"""First those whose verdicts trouble can turn most easily: a right one, and one that fails only when it is linked."""
_CLASS = {f"s{number}_{name.partition('/')[2]}.c": SAMPLES / name for number, name in enumerate(_SAMPLES)}
_MOST_SECONDS = 400.0
_AFTER = 1  # result, before what begins in mid-batch begins
_UNCHECKED = """import sys
sys.path.insert(0, {root!r})
import grader.system.resources, grader.system.sandbox, grader.runtime.native.symbolize
from dataclasses import replace
if {unchecked}:
    grader.system.resources.check_room = grader.system.resources.check_limits = lambda *_: None
grader.system.sandbox.COMPILE_LIMITS = replace(grader.system.sandbox.COMPILE_LIMITS, wall_seconds={patience})
grader.system.sandbox.LINK_LIMITS = replace(grader.system.sandbox.LINK_LIMITS, wall_seconds={patience})
grader.runtime.native.symbolize._LIMITS = replace(grader.runtime.native.symbolize._LIMITS, wall_seconds={patience})
"""
"""What Python runs first of all: without a first look at the machine the trouble comes later, and worse."""

Fault = Callable[["Trials"], AbstractContextManager[object]]
Scores = Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One kind of trouble."""

    name: str
    fault: Fault = lambda _: nullcontext()
    later: bool = False
    """Does it begin after the first results?"""
    space: str = ""
    """Options of the memory-backed file system that temporary files go to, if they do."""
    limits: Sequence[str] = ()
    """Of the shell's ulimit."""
    megabytes: int = 0
    """Of memory for all processes together; 0: as much as there is."""
    unchecked: bool = True
    """Is the grader kept from looking at the machine before it begins?"""
    valgrind: bool = False


@dataclass(slots=True)
class Trials:
    """Where they happen, and what an undisturbed grading says."""

    place: Path
    count: int
    expected: dict[bool, Scores] = field(default_factory=dict)
    gradings: int = 0

    def __post_init__(self) -> None:
        folder = self.place / "class"
        folder.mkdir()
        for name, sample in [*_CLASS.items()][: self.count]:
            shutil.copy(sample / "llm_memory.c", folder / name)
        for options in ((False, 0.0), (True, 0.0), (False, 4.0), (True, 4.0)):
            hook = self._hook(*options)
            hook.mkdir()
            text = _UNCHECKED.format(root=str(ROOT), unchecked=options[0], patience=options[1] or 30.0)
            (hook / "sitecustomize.py").write_text(text, encoding="utf-8")

    @property
    def temporary(self) -> Path:
        """For temporary files of the trial that is under way."""
        return self.place / "tmp"

    def undisturbed(self, *, valgrind: bool) -> Scores:
        """What must come out, found out once."""
        if valgrind not in self.expected:
            store = self.place / f"undisturbed-{valgrind}.sqlite"
            self._finish(self._start(store, valgrind=valgrind))
            self.expected[valgrind] = scores(store)
            assert len(self.expected[valgrind]) == self.count
        return self.expected[valgrind]

    def run(self, trial: Trial) -> tuple[bool, str]:
        """Whether it holds, and what was seen."""
        expected = self.undisturbed(valgrind=trial.valgrind)
        store = self.place / "trial.sqlite"
        for old in self.place.glob("trial.sqlite*"):
            old.unlink()
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(mode=0o755)
        with ExitStack() as stack:
            if trial.space:
                stack.enter_context(disk(self.temporary, trial.space))
            group = stack.enter_context(memory_group(trial.megabytes)) if trial.megabytes else None
            if trial.megabytes and group is None:
                return True, "skipped: no control group for memory can be made here"
            if not trial.later:
                stack.enter_context(trial.fault(self))
            process = self._start(store, trial, group, valgrind=trial.valgrind)
            if trial.later:
                self._wait_for(store, process)
                stack.enter_context(trial.fault(self))
            code = self._finish(process)
        shutil.rmtree(self.temporary, ignore_errors=True)
        disturbed = scores(store)
        again = self._finish(self._start(store, valgrind=trial.valgrind))
        after = scores(store)
        self.gradings += self.count
        wrong = [name for name, score in [*disturbed.items(), *after.items()] if expected[name] != score]
        lacking = len(expected) - len(disturbed)
        told = code in (3, -signal.SIGKILL, -signal.SIGXCPU, 137, 152) if lacking else code == 1
        seen = f"{len(disturbed)} graded, exit {code}; then {len(after)}, exit {again}"
        if wrong:
            seen += "; OTHERS: " + ", ".join(f"{name} {disturbed.get(name, after.get(name))}" for name in wrong)
        return not wrong and told and len(after) == len(expected) and again == 1, seen

    def _start(
        self, store: Path, trial: Trial | None = None, group: Path | None = None, *, valgrind: bool
    ) -> subprocess.Popen[bytes]:
        jobs = "1" if trial is None else "2"  # what is not disturbed may take its time
        options = [*FEW, "--jobs", jobs, *([] if valgrind else ["--without-memory-checker"])]
        words = command("batch", self.place / "class", "--store", store, *options)
        changes = {"XDG_CACHE_HOME": str(self.place / "cache")}
        if trial is not None:
            hangs = trial.name.endswith(("hang", "hang later"))
            hook = self._hook(trial.unchecked, 4.0 if hangs else 0.0)
            changes |= {"TMPDIR": str(self.temporary), "PYTHONPATH": f"{hook}:{ROOT}"}
            before = [f"echo $$ >{group}"] if group is not None else []
            script = " && ".join([*before, *(f"ulimit {limit}" for limit in trial.limits), 'exec "$@"'])
            words = ["bash", "-c", script, "bash", *words]
        return subprocess.Popen(
            words,
            cwd=ROOT,
            env={**environment(), **changes},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _hook(self, unchecked: bool, patience: float) -> Path:  # noqa: FBT001 - both make its name
        return self.place / f"hook-{unchecked}-{patience:g}"

    def _wait_for(self, store: Path, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _MOST_SECONDS
        while finished(store) < _AFTER and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)

    def _finish(self, process: subprocess.Popen[bytes]) -> int:
        try:
            return process.wait(_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return -1


def scores(store: Path) -> dict[str, tuple[str, int]]:
    """The verdict and the points of everybody who has a record."""
    if not store.exists():
        return {}
    with open_store(store) as kept:
        runs = list(kept.runs())
        found = list(kept.results(runs[-1])) if runs else []
    return {one.name: (str(one.verdict), one.stored.score) for one in found if one.stored is not None}


def _filled(trials: Trials, leave: int) -> AbstractContextManager[None]:
    with contextlib.suppress(OSError):
        faults.fill(trials.temporary, leave)
    return nullcontext()


def _empty_cache(trials: Trials, name: str, mode: str) -> AbstractContextManager[None]:
    shutil.rmtree(trials.place / "cache")
    return tool(name, mode)


def _of_disks() -> Iterator[Trial]:
    for kilobytes in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096):
        yield Trial(name=f"disk of {kilobytes} KB", space=f"size={kilobytes}k")
    for kilobytes in (16, 1024, 4096):
        yield Trial(name=f"disk of {kilobytes} KB, looked at", space=f"size={kilobytes}k", unchecked=False)
    for kilobytes in (0, 16, 256, 1024, 2048):
        full = partial(_filled, leave=kilobytes << 10)
        yield Trial(name=f"disk with {kilobytes} KB left later", space="size=64m", fault=full, later=True)
    for files in (4, 10, 16, 22, 30):
        yield Trial(name=f"disk of {files} files", space=f"size=64m,nr_inodes={files}")
    yield Trial(name="disk mounted noexec", space="noexec")
    yield Trial(name="cache mounted noexec", fault=lambda trials: disk(trials.place / "cache", "noexec"))


def _of_limits() -> Iterator[Trial]:
    for unchecked in (True, False):
        for limit in ("-v 150000", "-v 400000", "-v 1100000", "-f 128", "-f 1500", "-n 12", "-n 20", "-n 40"):
            yield Trial(name=f"ulimit {limit}{'' if unchecked else ', looked at'}", limits=[limit], unchecked=unchecked)
    for limit in ("-u 1", "-u 3"):
        yield Trial(name=f"ulimit {limit}", limits=[limit])
    for limit in ("-s 96", "-t 1"):  # a known-good file needs less of both: only the first look shows them
        yield Trial(name=f"ulimit {limit}, looked at", limits=[limit], unchecked=False)
    for megabytes in (60, 100, 140, 180, 240):
        yield Trial(name=f"memory of {megabytes} MB", megabytes=megabytes, valgrind=megabytes > 100)


def _of_tools() -> Iterator[Trial]:
    for name in TOOLS:
        for mode in (*MODES, *(["late"] if name == "valgrind" else [])):
            fault = partial(_failing, name=name, mode=mode)
            for later in (False, True):
                when = " later" if later else ""
                yield Trial(name=f"{name}: {mode}{when}", fault=fault, later=later, valgrind=name == "valgrind")
    for name in ("gcc", "ld", "objcopy"):
        for mode in ("exit", "garbage"):
            yield Trial(name=f"{name}: {mode}, nothing kept", fault=partial(_empty_cache, name=name, mode=mode))


def _failing(_: Trials, name: str, mode: str) -> AbstractContextManager[None]:
    return tool(name, mode)


TRIALS = (*_of_disks(), *_of_limits(), *_of_tools())
"""All of them."""


def main() -> int:
    """Do them and say how it went; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="trials with this in their names")
    parser.add_argument("--class", metavar="N", type=int, default=len(_CLASS), dest="count", help="of so many samples")
    parser.add_argument("--list", action="store_true", help="say which there are, and end")
    options = parser.parse_args()
    chosen = _chosen(options.only)
    if options.list:
        sys.stdout.writelines(f"{trial.name}\n" for trial in chosen)
        return 0
    place = faults.in_namespace()
    if place is None:
        code = own_namespace([sys.executable, "-m", "grader.tests.trials.fault_trials", *sys.argv[1:]])
        if code is not None:
            return code
        sys.stdout.write("no mounts are permitted here: trials of disks, tools and memory are skipped\n")
        with tempfile.TemporaryDirectory(prefix="fault-trials-") as name:
            Path(name).chmod(0o755)
            chosen = [trial for trial in chosen if trial.name.startswith("ulimit")]
            return _do(chosen, Trials(Path(name), options.count))
    faults.tools_replaced(place / "tools")
    return _do(chosen, Trials(place, options.count))


def _chosen(words: Sequence[str]) -> list[Trial]:
    """Return the trials with one of these names, or with a part of their name among them that is no name itself."""
    parts = [word for word in words if word not in {trial.name for trial in TRIALS}]
    return [one for one in TRIALS if not words or one.name in words or any(part in one.name for part in parts)]


def _do(chosen: Sequence[Trial], trials: Trials) -> int:
    failed = 0
    for trial in chosen:
        started = time.monotonic()
        holds, seen = trials.run(trial)
        failed += not holds
        took = time.monotonic() - started
        sys.stdout.write(f"{'holds ' if holds else 'BROKEN'}  {took:5.1f} s  {trial.name}: {seen}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{trials.gradings} gradings in {len(chosen)} trials, {failed} of which do not hold\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
