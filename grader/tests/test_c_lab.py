"""A lab with submissions in C is an engine, a driver, one table and data: the ring goes through everything there is."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import pipeline
from grader.assignment import case_files
from grader.assignment.case_files import select_cases
from grader.cli import install, run
from grader.core.closure import closure_of
from grader.core.errors import CaseFileError, InputError
from grader.core.picture import Drawing
from grader.core.record import Record
from grader.core.rubric import Facet
from grader.core.verdict import Verdict
from grader.report import FORMATS
from grader.report.document import View
from grader.runtime.native import values
from grader.runtime.native.project import functions_of
from grader.tests.support import toy_c
from grader.tests.support.command import grade, grade_process
from grader.tests.support.toy_c import lab as table
from grader.tests.support.toy_c.engine import Ring
from grader.tests.support.toy_c.lab import lab
from grader.tests.support.toy_house import house_with_toys
from grader.tests.support.toy_lab import RING, ROUND, WRONG_RING, ring_in_process
from reference.oracle import CannotGoOn

_HERE = Path(toy_c.__file__).parent
_ROOM, _FREE = "count > (size_t)(ring->capacity - ring->count)", "    free(ring->slots);\n    free(ring);\n"


def graded(folder: Path, source: str) -> Record:
    """The record of this ring."""
    (folder / "ring.c").write_text(source, encoding="utf-8")
    return pipeline.grade(folder, lab(), select_cases(lab(), seed=1).cases, draw=Drawing.ALL)


def test_a_lab_in_c_takes_few_lines() -> None:
    """Engine, driver and table, without blank lines."""
    texts = [(_HERE / name).read_text(encoding="utf-8") for name in ("engine.py", "driver.c", "lab.py")]

    assert sum(bool(line.strip()) for text in texts for line in text.splitlines()) <= 120


def test_a_right_ring_has_all_points(tmp_path: Path) -> None:
    """Nothing is said of it, and Valgrind is content."""
    record = graded(tmp_path, RING)

    assert (record.verdict, record.score, record.findings, record.failed_stages) == (Verdict.ACCEPTED, 100, (), ())


@pytest.mark.parametrize(
    ("old", "new", "rule", "sentence", "line"),
    [
        (ROUND, "ring->first + 1", "taking", "expected 3", "= ring->slots[ring->first]"),
        (_ROOM, "0", "putting", "returned 0, expected -1", "return 0;"),
        ("ring->count++;", "ring->count += 2;", "putting", "count is", "ring->count += 2;"),
        (_FREE, "    free(ring);\n", "", "lost", "malloc"),
        ("return ring;", "ring->slots = (int *)8; return ring;", "starting", "never allocated", ""),
        ("ring->slots[ring->first]", "*(int *)0", "taking", "crashes", "*(int *)0"),
    ],
)
def test_each_mistake_has_its_line(  # noqa: PLR0917 - a table
    tmp_path: Path, old: str, new: str, rule: str, sentence: str, line: str
) -> None:
    """States and replies are judged by facets, as in Python; what the harness sees of memory comes besides."""
    source = RING.replace(old, new)
    record = graded(tmp_path, source)
    causes = [cause for cause in record.causes if sentence in cause.sentence]

    assert source != RING
    assert causes, [cause.sentence for cause in record.causes]
    assert not rule or rule in [cause.rule for cause in record.causes]
    assert not line or line in source.splitlines()[causes[0].lines[0].line - 1]
    assert all(str(write(record, View())) for write in FORMATS.values())
    assert not [
        cause.hint for cause in record.causes if re.search(r"\w (?:This leads|In the same|It goes)", cause.hint)
    ]


def test_a_class_is_graded_stored_shown_and_graded_again(tmp_path: Path) -> None:
    """The lab follows from the file's name."""
    for name, source in {"ada": RING, "bob": WRONG_RING}.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "ring.c").write_text(source, encoding="utf-8")
    with ring_in_process():
        first = grade("batch", "in", "--jobs", "1", cwd=tmp_path)
        again = grade("batch", "in", "--jobs", "1", cwd=tmp_path)
        rows = csv.DictReader(io.StringIO(grade("export", cwd=tmp_path).out))
        points_of = {row["submission"]: int(row["score"]) for row in rows}
        shown = grade("show", "bob", cwd=tmp_path)
        regraded = grade("regrade", "--jobs", "1", cwd=tmp_path)

    assert (first.code, again.code, regraded.code) == (1, 1, 1), first.err
    assert "2 of them graded already" in again.err
    assert points_of["ada"] == 100 > points_of["bob"]
    assert "ring_take" in shown.out


def test_a_failing_case_is_a_program(tmp_path: Path) -> None:
    """It contains the driver, builds by the handout's command, fails on the submission and passes on a right one."""
    starter = lab().starter["ring.h"]
    assert isinstance(starter, Path)
    (tmp_path / "ring.h").write_bytes(starter.read_bytes())
    (tmp_path / "ring.c").write_text(WRONG_RING, encoding="utf-8")
    with ring_in_process():
        done = grade("repro", "ring.c", "--output", "repro.c", cwd=tmp_path)
    wrong = _run(tmp_path)
    (tmp_path / "ring.c").write_text(RING, encoding="utf-8")
    right = _run(tmp_path)

    assert done.code == 0, done.err
    assert wrong.returncode == 1
    assert "behind the end of the 8 bytes" in wrong.stderr
    assert (right.returncode, right.stdout, right.stderr) == (0, "", "")


def _run(folder: Path) -> subprocess.CompletedProcess[str]:
    """Build and run the reproduction in a folder."""
    command = ["sh", "-c", lab().reproduce_command]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the house with the ring among its labs, and with samples of it."""
    return house_with_toys(tmp_path_factory.mktemp("rings") / "house")


@pytest.mark.parametrize(
    ("source", "trace", "rule"),
    [
        (WRONG_RING, "> ring_take -> 1", "no known mistake fits"),
        (RING.replace(_ROOM, "0"), "> ring_put [1,1] -> -1", 'rule       = "putting"'),
        (RING.replace(_FREE, "    free(ring);\n"), "> ring_free -> 0", "no known mistake fits"),
    ],
    ids=["wrong", "known", "leaks"],
)
def test_a_search_finds_the_smallest_trace(tmp_path: Path, source: str, trace: str, rule: str) -> None:
    """Its file names the rule where a mistake is known, and is fair: what the trace made is freed at its end."""
    (tmp_path / "ring.c").write_text(source, encoding="utf-8")
    with ring_in_process():
        done = grade("hunt", ".", "--output", "small.toml", "--program", "small.c", cwd=tmp_path)
        right = grade("explain", "small.toml", "--lab", "ring", cwd=tmp_path)
    (tmp_path / "ring.c").write_text(RING, encoding="utf-8")
    case = case_files.load(tmp_path / "small.toml", lab().grammar, seed=1)

    assert (done.code, right.code) == (1, 0), done.err
    assert trace in done.out
    assert "starting" not in done.out
    assert rule in (tmp_path / "small.toml").read_text(encoding="utf-8")
    assert "int main(void)" in (tmp_path / "small.c").read_text(encoding="utf-8")
    assert pipeline.grade(tmp_path, lab(), [case]).verdict is Verdict.ACCEPTED


def test_a_small_ring_is_checked_beyond_the_cases(house: Path, tmp_path: Path) -> None:
    """Where every case passes; where one fails, its smallest trace is sought."""
    odd = "*value = ring->slots[ring->first];\n    ring->count -= ring->first == 0 && *value == 2;"
    said = {}
    for name, source in {
        "right": RING,
        "odd": RING.replace("*value = ring->slots[ring->first];", odd),
        "wrong": RING.replace(_ROOM, "0"),
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "ring.c").write_text(source, encoding="utf-8")
        said[name] = grade_process("run", name, "--search", "--all", cwd=tmp_path, root=house)
    closure = closure_of(lab().smalls()[0])

    assert f"All {closure.transitions} transitions of a small engine agree" in said["right"].out
    assert "Every case passes, but your program goes wrong in these calls" in " ".join(said["odd"].out.split())
    assert "Smallest  ring_new 1; ring_put [1,1]: " in said["wrong"].out


def test_each_save_of_a_watched_ring_is_graded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cause with its smallest trace, then that all is right."""
    file = tmp_path / "ring.c"

    def saves(*_: object, **__: object) -> Iterator[None]:
        file.write_text(RING, encoding="utf-8")
        yield
        raise KeyboardInterrupt

    file.write_text(RING.replace(_ROOM, "0"), encoding="utf-8")
    monkeypatch.setattr(run, "changes_of", lambda: saves)
    with ring_in_process():
        watched = grade("watch", ".", cwd=tmp_path)

    assert (watched.code, watched.err) == (0, "no longer watching\n")
    assert watched.out.index("> ring_put [") < watched.out.index("accepted, 100 of 100 points")


def test_mutants_of_a_ring_are_tried(house: Path) -> None:
    """With the samples, whose wrong one is caught."""
    done = grade_process(
        *("calibrate", "--lab", "ring", "--mutants", "6", "--seconds", "1", "--jobs", "2"), root=house, cwd=house
    )

    assert done.code in (0, 1), done.err
    assert "wrong programs fail a case" in done.out
    assert "6 mutants" in done.out


def test_random_traces_are_an_error_of_the_case_file(tmp_path: Path) -> None:
    """Nobody plays them in C yet."""
    case = 'title = "many"\nhandout = "Part 2/order"\nvisibility = "public"\nrule = "putting"\nseeds = 5\nlength = 9\n'
    (tmp_path / "many.toml").write_text(case, encoding="utf-8")
    with ring_in_process():
        checked = grade("explain", "--lab", "ring", str(tmp_path / "many.toml"))

    assert checked.code == 2
    assert "this lab has no random traces" in checked.err


def test_states_are_explained_and_the_machine_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """`explain` draws the facets, `doctor` tries a grading of each lab."""
    monkeypatch.setattr(install, "present", lambda: ["ring"])
    with ring_in_process():
        explained = grade("explain", "--lab", "ring", "putting/in_order")
        looked = grade("doctor")

    assert "values   1 2 3" in explained.out
    assert "a whole grading of ring: works" in looked.out


def test_a_parameter_without_a_name_is_an_error_of_the_header(tmp_path: Path) -> None:
    """Stubs need names; a pointer, an array and no parameter at all are fine."""
    header = tmp_path / "ring.h"
    header.write_text("int one(const int *values, char text[], size_t count);\nint *two(void);\nvoid three(Ring *r);\n")
    stubs = functions_of(header, {"one": "-1"})

    assert stubs["one"].endswith("{ (void)values; (void)text; (void)count; return -1; }")
    assert (stubs["two"], stubs["three"]) == ("int *two(void) { return NULL; }", "void three(Ring *r) { (void)r; }")
    header.write_text("int one(Ring *, int);\n")
    with pytest.raises(InputError, match=r"ring\.h:1: one has a parameter without a name"):
        functions_of(header, {})


def test_named_values_come_back_and_others_are_refused() -> None:
    """Whatever a program puts in the place of a record, reading it ends."""
    record = {"reply": {"returned": None}, "state": {"a": -1, "b": [1, 2], "c": [], "d": [{"x": 1 << 40}, "é", [[3]]]}}
    content = values.encode(record)
    chance = random.Random(1)

    assert values.decode(content) == record
    for _ in range(1000):
        damaged = bytearray(content)
        for _ in range(chance.randrange(1, 5)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = bytes(damaged[: chance.choice([len(damaged), chance.randrange(len(damaged))])])
        try:
            json.dumps(values.decode(cut))
        except CannotGoOn:
            continue


def test_a_call_that_is_added_to_a_case_is_none_that_must_succeed(tmp_path: Path) -> None:
    """A program that refuses everything would pass such a case."""
    case = (_HERE / "cases" / "starting" / "refuses.toml").read_text(encoding="utf-8")
    (tmp_path / "no.toml").write_text(re.sub("ring_free(.|\n)*", "'''\n", case), encoding="utf-8")

    with pytest.raises(CaseFileError, match="every call is refused"):
        case_files.load(tmp_path / "no.toml", lab().grammar, seed=1)


_SIZE = Facet("size", path="state.ring.size"), Facet("parts", per="value", path="state.ring.values.*.part")


@pytest.mark.parametrize(
    ("facets", "forgets", "messages"),
    [
        ((), False, []),
        (_SIZE, False, ["path state.ring.size of the facet size leads", "state.ring.values.*.part of the facet parts"]),
        ((), True, ["putting/all_or_none: restore(state()) of the oracle does not lead back"]),
    ],
)
def test_a_table_that_does_not_fit_the_oracle_is_an_error_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, facets: tuple[Facet, ...], *, forgets: bool, messages: list[str]
) -> None:
    """All cases together show it, when they are read for the first time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(table, "FACETS", (*table.FACETS, *facets))
    if forgets:
        monkeypatch.setattr(Ring, "restore", lambda ring, _: setattr(ring, "values", []))
    with ring_in_process():
        listed = grade("cases", "--lab", "ring", variables={"XDG_CACHE_HOME": str(tmp_path)})

    assert listed.code == (2 if messages else 0), listed.err
    assert len(listed.err.splitlines()) == len(messages)
    assert [message for message in messages if message not in listed.err] == []


def test_arguments_that_do_not_fit_are_an_error_of_the_case_file(tmp_path: Path) -> None:
    """With the place, and what to write."""
    case = (_HERE / "cases" / "putting" / "in_order.toml").read_text(encoding="utf-8")
    (tmp_path / "long.toml").write_text(case.replace("[3]", "[3000000000]"), encoding="utf-8")
    with ring_in_process():
        checked = grade("explain", "--lab", "ring", str(tmp_path / "long.toml"))

    assert checked.code == 2
    assert "long.toml:8" in checked.err
    assert "a list of ints" in checked.err
