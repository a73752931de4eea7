"""Hostile Python submissions of the toy lab, graded one by one.

    python -m grader.tests.support.hostile_python [NAME]...

Each program of tests/runtime/python/hostile follows the honest part in one file; TEXTS are whole files
that no folder of Python programs could hold. TMPDIR and HOME must be folders of its own. The first line of the output
is the level of protection; then there is a line of JSON for each program, with what does not hold of it: it gets no
more than the honest part, no fault of the grader, and every report can be made; it shows nothing that it should not
have got, and leaves no file and no process.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grader.assignment.case_files import select_cases
from grader.core.picture import Drawing
from grader.core.record import Record, from_json, to_json
from grader.core.verdict import Verdict
from grader.pipeline import grade
from grader.report import FORMATS
from grader.report.document import View
from grader.system import sandbox
from grader.tests.support import toy
from grader.tests.support.command import ROOT, environment
from grader.tests.support.machines import Machine, become
from grader.tests.support.toy_lab import edited, lab

HONEST = 80
"""The points of the honest part: what it says of usage is wrong."""

MOST_SECONDS = 10.0
SLOW = frozenset(
    (
        *("asks_and_never_ends", "asks_for_very_many_modules", "floods_before_each_restart"),
        *("is_slow_in_its_check_only", "leaves_by_exit_and_help"),
        *("computes_seldom_in_every_call", "computes_seldom_in_its_import", "counts_in_c", "dribbles_messages"),
        *("floods_stderr", "floods_stdout", "floods_the_harness_with_bytes", "floods_the_harness_with_messages"),
        *("hangs_when_imported", "hangs_when_imported_again", "has_endless_properties", "has_huge_states"),
        *("has_large_wrong_states_in_all_cases", "has_states_as_large_as_may_be", "lives_on_after_its_end"),
        *("ignores_signals", "imports_very_many_modules", "matches_for_hours", "never_comes_back"),
        *("never_comes_back_from_any_call", "pretends_to_be_another_file", "replaces_its_own_module"),
        *("sends_records_with_endless_numbers", "sleeps_in_every_call"),
    )
)
"""Programs that use up much of the time that they may use. Only `trials.hostile_python_levels` grades them."""

_FOLDER = ROOT / "grader" / "tests" / "runtime" / "python" / "hostile"
_HONEST = edited(('"""A right shelf."""', ""), ("sum(box.users > 0 for box in self.boxes) / len(self.boxes)", "-1.0"))
"""The honest part."""
_ROOM = (1 << 20) - 10_000
_GOT = "hostile: "
"""A program prints this before what it could read and should not."""
_SHARED = ("/", "/tmp", "/var/tmp", "/dev/shm", "/run")
_VIEWS = (View(), View(instructor=True, everything=True))


def _filled(line: Callable[[int], str]) -> bytes:
    """As many lines as a file may have bytes."""
    text, number = "", 0
    while len(text) < _ROOM:
        text += "".join(line(number + place) for place in range(1000))
        number += 1000
    return text[:_ROOM].rpartition("\n")[0].encode() + b"\n"


TEXTS: Mapping[str, Callable[[], bytes]] = {
    "text_of_parentheses": lambda: b"(" * _ROOM,
    "text_of_nested_lists": lambda: b"x = " + b"[" * 150 + b"]" * 150 + b"\n",
    "text_of_signs": lambda: b"x = " + b"-" * _ROOM + b"1\n",
    "text_of_a_sum": lambda: b"x = 1" + b"+1" * (_ROOM // 2) + b"\n",
    "text_of_attributes": lambda: b"x = a" + b".a" * (_ROOM // 2) + b"\n",
    "text_of_nested_blocks": lambda: b"".join(b" " * depth + b"if 1:\n" for depth in range(99)) + b" " * 99 + b"1\n",
    "text_of_lambdas": lambda: b"x = " + b"lambda:" * (_ROOM // 7) + b"1\n",
    "text_of_functions": lambda: _filled(lambda number: f"def f{number}(): pass\n"),
    "text_of_classes": lambda: _filled(lambda number: f"class C{number}: a = lambda b: [b for b in b]\n"),
    "text_of_folded_constants": lambda: _filled(lambda number: f"'{number:07}' * 580\n"),
    "text_of_imports": lambda: _filled(lambda number: f"import json.a{number}\n"),
    "text_of_imports_of_long_names": lambda: b"import " + b"a" * 500_000 + b"\nimport " + b"b" * 500_000 + b"\n",
    "text_of_a_long_name": lambda: b"a" * _ROOM + b"\n",
    "text_of_digits": lambda: b"x = " + b"9" * _ROOM + b"\n",
    "text_of_hexadecimal_digits": lambda: b"x = 0x" + b"f" * _ROOM + b"\n",
    "text_of_null_bytes": lambda: _HONEST.encode() + b"\0" * 100,
    "text_in_utf_16": lambda: _HONEST.encode("utf-16"),
    "text_of_all_bytes": lambda: bytes(range(256)) * 100,
    "text_in_an_unknown_encoding": lambda: b"# coding: hostile\n" + _HONEST.encode(),
    "text_in_an_encoding_of_no_text": lambda: b"# coding: uu\n" + _HONEST.encode(),
    "text_in_an_encoding_named_as_a_path": lambda: b"# coding: ..os.path\n" + _HONEST.encode(),
    "text_in_utf_7_with_surrogates": lambda: b"# coding: utf-7\nx = '+2AA-'\nraise ValueError(x)\n",
    "text_in_punycode": lambda: b"# coding: punycode\n" + b"-9" * 100_000,
    "text_without_anything": lambda: b"",
}
"""Files that are no honest part with something behind it."""


def programs() -> dict[str, Callable[[], bytes]]:
    """Return all programs by name; each as a function that returns the text of its file."""
    attacks = {path.stem: partial(_behind_honest, path) for path in sorted(_FOLDER.glob("*.py"))}
    return {**attacks, **TEXTS}


def honest_with(name: str) -> bytes:
    """Return the honest part with a file of the toy lab behind it."""
    return _behind_honest(Path(toy.__file__).with_name(f"{name}.py"))


def graded_on(machine: Machine | None, names: Sequence[str]) -> list[dict[str, Any]]:
    """Grade these programs and then the honest part, on such a machine or as this one is; return what was printed.

    Raises `AssertionError` where the machine has another level of protection, or the grader came to a bad end.
    """
    with tempfile.TemporaryDirectory(prefix="hostile-python-") as around:
        folders = {name: Path(around) / name.lower() for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME")}
        for folder in (Path(around), *folders.values()):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-m", "grader.tests.support.hostile_python", *names],
            cwd=ROOT,
            env={**environment(PATH=os.environ["PATH"]), **{name: str(folder) for name, folder in folders.items()}},
            preexec_fn=(lambda: become(machine)) if machine is not None else None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    level, *graded = [json.loads(line) for line in done.stdout.splitlines()] or [""]
    assert machine is None or level == machine.level, (level, done.stderr[-2000:])
    assert (done.returncode, len(graded)) == (0, len(names) + 1), (done.returncode, done.stderr[-2000:])
    return graded


def _behind_honest(path: Path) -> bytes:
    attack = path.read_text(encoding="utf-8").replace("HOSTILE_ROOT", str(ROOT))
    return f"{_HONEST}\n\n{attack}".encode()


def _graded(name: str, content: bytes) -> dict[str, object]:
    """Grade one program; return its record in short, the time that it took, and its problems."""
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    (folder / "shelf.py").write_bytes(content)
    cases = select_cases(lab(), seed=1).cases
    before, started, computed = set(_files()), time.monotonic(), _cpu_seconds()
    record, problems = None, []
    try:
        record = grade(folder, lab(), cases, draw=Drawing.ALL)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
        problems.append(f"{type(error).__name__}: {str(error)[:300]}")
    wall, cpu = time.monotonic() - started, _cpu_seconds() - computed
    shutil.rmtree(folder)
    if record is not None:
        problems += _wrong(record)
    problems += [f"{path} appeared" for path in sorted(set(_files()) - before)]
    problems += [f"process {pid} goes on" for pid in _children()]
    if cpu > MOST_SECONDS * lab().runtime.pace_now():
        problems.append(f"{cpu:.1f} s of CPU")
    score, verdict = (record.score, str(record.verdict)) if record is not None else (None, "")
    message = record.findings[0].message[:150] if record is not None and record.findings else ""
    return {
        "name": name,
        "score": score,
        "verdict": verdict,
        "message": message,
        "cpu": cpu,
        "wall": wall,
        "problems": problems,
    }


def _wrong(record: Record) -> Iterator[str]:
    """Yield what a record shows that it must not."""
    if record.score is None or record.score > HONEST or record.verdict is Verdict.JUDGE_ERROR:
        yield f"{record.verdict}, {record.score} points"
    if _GOT in record.output:
        yield f"it got something: {record.output[:300]}"
    if record.failed_stages:
        yield f"failed stages: {record.failed_stages}"
    if from_json(to_json(record)) != record:
        yield "its record cannot be stored"
    for name, render in FORMATS.items():
        for view in _VIEWS:
            try:
                str(render(record, view)).encode()
            except Exception as error:  # noqa: BLE001 - see above
                yield f"no report as {name}: {type(error).__name__}: {str(error)[:200]}"


def _files() -> Iterator[str]:
    """Yield files that programs may leave: any in the grader's folders, those with their mark in shared ones."""
    for folder in (Path(tempfile.gettempdir()), Path.home()):
        yield from (str(path) for path in folder.glob("*"))
    for name in _SHARED:
        yield from (str(path) for path in Path(name).glob("*hostile_mark*"))


def _children() -> list[int]:
    """This process, which adopts orphans, has no child between two gradings."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    return [int(child) for task in tasks.iterdir() for child in (task / "children").read_text().split()]


def _cpu_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> int:
    """Grade the programs of these names, or all, and then the honest part."""
    chosen = sys.argv[1:]
    sys.stdout.write(json.dumps(sandbox.protection().level) + "\n")
    for name, text in {**programs(), "honest": _HONEST.encode}.items():
        if not chosen or name in chosen or name == "honest":
            sys.stdout.write(json.dumps(_graded(name, text())) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
