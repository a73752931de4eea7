"""`python -m grader.tests.trials.standard_library [MODULE]...`: what a submission may call of the standard library.

Each public function and class of every module that may be imported is called with a few arguments: in a plain process,
and in the harness, where a submission imports nothing but this module. Both must end alike, or standard_library.csv
beside this file must say how they differ: there stands what is refused. It was made with Python 3.11; functions of
other versions that it does not know fail the trial when they differ. `--write` makes it anew. Two minutes.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from grader.runtime.python import process
from grader.runtime.python.driver import PythonDriver
from grader.system import sandbox
from grader.system.budget import Budget, TimeLimits

_DRIVER = PythonDriver.of("""
import shelf as submission

class World: pass

def use(world: World, name: str) -> Any: return submission.use(name)

def read(world): return {}
""")
_LISTED = Path(__file__).with_suffix(".csv")
_COLUMNS = ("function", "plain", "graded")
_CALLING = """
ARGUMENTS = [(), ("a",), (0,), ([],), (b"a",), (print,), ("a", "a"), (0, 0), ([], []), ("a", 0), (int, []), (0, "a")]


def use(name):
    return ", ".join(outcome(vars(MODULE)[name], arguments) for arguments in ARGUMENTS)


def outcome(call, arguments):
    try:
        return type(call(*arguments)).__name__
    except BaseException as error:
        return f"raises {type(error).__name__}"
"""
"""What a submission defines besides its import."""
_ALONE = """
import os, select, shutil, signal, sys
HERE = os.getcwd()
for name in sorted(name for name, value in vars(MODULE).items() if name[0] != "_" and callable(value)):
    for left in os.listdir():
        shutil.rmtree(left, ignore_errors=True) if os.path.isdir(left) else os.remove(left)
    end, its_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(3)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.write(its_end, use(name).encode())
        os._exit(0)
    os.close(its_end)
    _, status = os.waitpid(pid, 0)
    seen = os.read(end, 4096).decode() if select.select([end], [], [], 0)[0] else ""
    os.close(end)
    os.write(1, f"{name} {seen or 'ends the process'}\\n".encode())
"""
"""What a plain process does with the same text: it calls each function in a process of its own."""


def main(arguments: Sequence[str]) -> int:
    """Print what differs and is not listed, and return 1 if anything does."""
    names = [argument for argument in arguments if argument != "--write"] or list(_modules())
    differ: dict[str, tuple[str, str]] = {}
    for place, name in enumerate(names, start=1):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{place} of {len(names)}: {name:30}")
        differ |= _differences(name)
    if "--write" in arguments:
        with _LISTED.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(
                [_COLUMNS, *((key, *differ[key]) for key in sorted(differ))]
            )
        return 0
    with _LISTED.open(newline="", encoding="utf-8") as file:
        listed = {row["function"]: (row["plain"], row["graded"]) for row in csv.DictReader(file)}
    new = [f"{name}: {alone}; graded it {graded}" for name, (alone, graded) in differ.items() if name not in listed]
    sys.stdout.write("\n".join([*new, f"{len(names)} modules; {len(differ)} functions are refused or differ", ""]))
    return 1 if new else 0


def _modules() -> Iterator[str]:
    """Yield the modules that a submission may import."""
    harness = Path(process.__file__).parent / "harness"
    sys.path.insert(0, str(harness))
    cage = import_module("cage")
    yield from (name for name in sorted(sys.stdlib_module_names) if cage.may_be_imported(name, ()))


def _differences(module: str) -> dict[str, tuple[str, str]]:
    """Return the functions of a module that end otherwise in the harness: both ends, by name."""
    source = f"import {module} as MODULE\n{_CALLING}".encode()
    limits = TimeLimits(submission=600.0, python_replay=600.0)
    with sandbox.workspace(Budget(limits=limits), tools=(process.interpreter(),)) as work:
        alone = _alone(work, source)
        graded = _graded(work, source, module, list(alone))
    ends = {name: (alone[name], graded.get(name, "ends the process")) for name in alone}
    return {f"{module}.{name}": _first_difference(*both) for name, both in ends.items() if both[0] != both[1]}


def _first_difference(alone: str, graded: str) -> tuple[str, str]:
    pairs = zip(alone.split(", "), graded.split(", "), strict=False)
    return next((pair for pair in pairs if pair[0] != pair[1]), (alone, graded))


def _alone(work: sandbox.Workspace, source: bytes) -> dict[str, str]:
    work.clear()
    program = source.decode() + _ALONE
    done = work.run(
        lambda _: [process.interpreter(), "-s", "-P", "-B", "-c", program],
        limits=replace(sandbox.RUN_LIMITS, silent_seconds=60.0, silent_start_seconds=60.0, own_seconds=600.0),
    )
    return dict(line.partition(" ")[::2] for line in done.stdout.decode().splitlines())


def _graded(work: sandbox.Workspace, source: bytes, module: str, names: Sequence[str]) -> Mapping[str, str]:
    plan = [{"case": number, "operations": [["use", [name]]]} for number, name in enumerate(names)]
    program = process.PythonProgram(content=source, source_name=_DRIVER.file, modules=(module,))
    done = process.run(work, program, _DRIVER, plan, total=600.0)
    sent = (frame for frame in process.frames(done.channels[0]) if frame.kind == "S")
    return {names[frame.case]: json.loads(frame.body)["reply"].get("returned", "") for frame in sent}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
