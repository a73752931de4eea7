"""What a submission may call of the standard library works, and what is refused is named. The trial is complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grader.core.record import Record
from grader.core.verdict import EXCEPTION, Audience, Verdict
from grader.report import FORMATS
from grader.report.document import View
from grader.report.start_here import focus
from grader.runtime.python import process
from grader.runtime.python.driver import PythonDriver
from grader.system import sandbox
from grader.tests.support.toy_lab import RIGHT, WRONG, edited, graded

_DRIVER = PythonDriver.of("""
import shelf as submission

class World: pass

def use(world: World) -> Any: return submission.use()

def read(world): return {}
""")


@pytest.mark.parametrize(
    ("module", "expression"),
    [
        ("collections", "collections.Counter('aab').most_common(1)"),
        ("collections", "collections.namedtuple('Slot', 'block offset')(1, 2)"),
        ("datetime", "datetime.datetime.strptime('2026', '%Y').year"),
        ("functools", "functools.singledispatch(len)([])"),
        ("functools", "functools.singledispatch(len).register(int, abs)(-1)"),
        ("time", "time.strptime('2026', '%Y').tm_year"),
        ("typing", "typing.get_type_hints(typing.NamedTuple('Slot', [('block', int)]))['block'] is int"),
        ("typing", "isinstance([], typing.runtime_checkable(type('P', (typing.Protocol,), {'pop': len})))"),
        ("warnings", "warnings.filterwarnings('ignore', 'deprecated')"),
        ("warnings", "warnings.warn('late')"),
        ("dataclasses", "dataclasses.asdict(dataclasses.make_dataclass('Slot', ['block'])(1))"),
        ("enum", "enum.IntFlag('Kind', 'FULL WINDOW').FULL.value"),
        ("random", "random.Random(1).sample(range(9), 2)"),
        ("traceback", "traceback.format_stack() and 0"),
        ("uuid", "uuid.uuid5(uuid.NAMESPACE_DNS, 'block').int % 7"),
        ("string", "'block'.encode('utf-16-le').decode('utf-16-le')"),
        ("weakref", "weakref.finalize(set(), print).alive"),
        ("argparse", "argparse.ArgumentParser().parse_args().__class__.__name__"),
        ("pathlib", "pathlib.Path('notes.txt').exists()"),
        ("os", "[os.path.exists('notes.txt'), os.access('notes.txt', os.R_OK)]"),
        ("importlib", "importlib.import_module('heapq').nlargest(1, [1, 2])"),
        ("concurrent.futures", "concurrent.futures.ThreadPoolExecutor(1) and 0"),
        ("unittest", "unittest.TestCase().assertEqual(1, 1)"),
        ("logging", "logging.basicConfig(filename='debug.log', force=True) or logging.warning('late')"),
        ("builtins", "[exit.eof, quit.name]"),
        ("unittest", "unittest.TestCase().assertRaises(LookupError, 'a'.encode, 'a' * 200)"),
        ("unittest", "unittest.TestCase().assertRaises(ImportError, __import__, 'os.\\ud800')"),
    ],
)
def test_a_function_works_when_only_its_module_is_imported(module: str, expression: str) -> None:
    """No other line of the submission imports what it needs."""
    sent = _used(module, expression)

    assert [kind for kind, _ in sent] == ["S"], sent
    assert "returned" in sent[0][1]["reply"]


def test_no_module_is_imported_from_the_folder_that_programs_may_write_to() -> None:
    """What a program makes there must not run in the harness's first process."""
    ((_, sent),) = _used("sys", "[each for each in sys.path if 'grade-' in each]")

    assert sent["reply"] == {"returned": []}


def _used(module: str, expression: str) -> list[tuple[str, Any]]:
    """What a submission that imports this module sends when it returns this."""
    source = f"import {module}\n\n\ndef use():\n    return {expression}\n"
    with sandbox.workspace(tools=(process.interpreter(),)) as work:
        plan = [{"case": 0, "operations": [["use", []]]}]
        program = process.PythonProgram(content=source.encode(), source_name=_DRIVER.file, modules=(module,))
        done = process.run(work, program, _DRIVER, plan, total=5.0)
    return [(frame.kind, json.loads(frame.body)) for frame in process.frames(done.channels[0]) if frame.kind in "SXR"]


_TAKE = '        if count > len(self.free):\n            raise ValueError("too few'
_ABOVE = '"""A right shelf."""\n'


def _taking(statement: str, imports: str = "") -> str:
    """The right shelf, with a statement at the beginning of `take`."""
    return edited((_TAKE, f"        {statement}\n{_TAKE}"), (_ABOVE, f"{_ABOVE}{imports}\n"))


def _table_of(record: Record) -> str:
    """The report from the table of the trace on."""
    return str(FORMATS["text"](record, View())).partition("expected  yours")[2]


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("breakpoint()", "take calls breakpoint(), but"),
        ("input()", "take calls input(), but"),
        ("open('notes.txt').read()", "take raises FileNotFoundError: no file can be read"),
        ("os.listdir()", "take calls os.listdir, which is refused"),
        ("subprocess.run(['true'])", "take calls subprocess.Popen, which is refused"),
        ("threading.Thread(target=print).start()", "take calls _thread.start_new_thread, which is refused"),
        ("multiprocessing.Lock()", "take calls _multiprocessing.SemLock, which is refused"),
        ("sys.exit()", "take ends the whole program"),
        ("exit()", "take ends the whole program"),
        ("os._exit(0)", "take ends the whole program"),
    ],
)
def test_what_is_refused_heads_the_report(tmp_path: Path, statement: str, named: str) -> None:
    """No rule and no sentence about the call stands there: they are not what is broken."""
    record = graded(tmp_path, _taking(statement, "import multiprocessing, os, subprocess, sys, threading"))
    shown = focus(record, Audience.STUDENT)

    assert shown is not None
    assert (shown.rule, shown.clauses, shown.hint) == ("", (), "")
    assert named in shown.seen
    assert "_exit" in statement or shown.source[0].function == "take"
    assert "stopped" in _table_of(record)


def test_an_error_of_the_programs_own_is_no_refusal(tmp_path: Path) -> None:
    """It may be of the class that a missing file has."""
    record = graded(tmp_path, _taking("raise FileNotFoundError('no such box')"))

    assert "take raises FileNotFoundError: no such box" in record.findings[0].message
    assert record.findings[0].kind == EXCEPTION


@pytest.mark.parametrize(
    "statement",
    [
        "open('debug.log', 'a').write('taking')",
        "print(count, file=open('debug.log', 'w+'), flush=True)",
        "open('debug.log', 'xb', buffering=0).write(bytes(1 << 20))",
        "pathlib.Path('debug.log').write_text('taking')",
        "logging.basicConfig(filename='debug.log', force=True) or logging.warning('late')",
    ],
)
def test_a_file_that_is_written_costs_nothing(tmp_path: Path, statement: str) -> None:
    """Its content is dropped, which is said once as advice."""
    record = graded(tmp_path, _taking(statement, "import logging, pathlib"))

    assert (record.verdict, record.score) == (Verdict.ACCEPTED, 100)
    assert [(advice.kind, advice.source[0].function) for advice in record.advice] == [("dropped", "take")]


_USAGE = "        return sum(box.users > 0 for box in self.boxes) / len(self.boxes)"
_SLOW = edited((_USAGE, f"        time.sleep(2.5)\n{_USAGE}"), (_ABOVE, f"{_ABOVE}import time\n"))
"""Its usage takes longer than an operation may take, and a whole trace of it not too long."""


@pytest.mark.parametrize("source", [RIGHT, WRONG, _SLOW])
def test_a_module_that_takes_long_to_import_has_the_same_points(tmp_path: Path, source: str) -> None:
    """Cases share processes then; what fails there is played alone."""
    slow = f"{source}\nimport time\n\nuntil = time.thread_time() + 0.2\nwhile time.thread_time() < until:\n    pass\n"
    at_once, late = (graded(tmp_path, text) for text in (source, slow))

    assert [(each.score, each.verdict, each.causes) for each in (at_once, late)] == [
        (at_once.score, at_once.verdict, at_once.causes)
    ] * 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("while True:\n    pass\n", "importing shelf.py takes more than two seconds"),
        ("import unittest\n\nunittest.main()\n", "shelf.py ends the program when it is imported"),
        ("import argparse\n\np = argparse.ArgumentParser()\np.add_argument('file')\np.parse_args()\n", "shelf.py ends"),
    ],
)
def test_what_belongs_below_main_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    """The finding says where to put it."""
    record = graded(tmp_path, f"{RIGHT}\n{text}")

    assert record.findings[0].message.startswith(sentence)
    assert 'if __name__ == "__main__":' in record.findings[0].message
