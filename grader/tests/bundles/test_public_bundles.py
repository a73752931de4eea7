"""What students get, used where nothing else of ours is: it grades, says how far it goes, and hides what is hidden."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from grader.assignment.case_files import select_cases
from grader.bundles import tree
from grader.core.case import Case
from grader.core.verdict import Visibility
from grader.labs.paged_kv.lab import lab
from grader.report.document import View
from grader.tests.support.bundled import Bundle, clean, ran, workflow_ran
from grader.tests.support.command import SAMPLES
from grader.tests.support.injected import obeyed
from grader.tests.support.readers import READERS, RUNNER

PUBLIC = ("starter", "classroom50", "actions")
RIGHT, WRONG = SAMPLES / "accepted" / "yoda_crlf", SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
WORDS = re.compile(r"public part: (\d+) of (\d+) points; hidden cases not run here")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    """Each public bundle, packed once, with an environment."""
    place = tmp_path_factory.mktemp("bundles")
    return {name: Bundle.of(name, place / name) for name in PUBLIC}


@pytest.fixture
def starter(bundles: dict[str, Bundle]) -> Iterator[Bundle]:
    """The kit of a student."""
    yield bundles["starter"]
    bundles["starter"].restore()


@pytest.fixture
def classroom50(bundles: dict[str, Bundle]) -> Iterator[Bundle]:
    """The bundle as the runner of Classroom 50 extracts it."""
    yield bundles["classroom50"]
    bundles["classroom50"].restore()


@pytest.fixture
def actions(bundles: dict[str, Bundle]) -> Iterator[Bundle]:
    """The repository with a workflow."""
    yield bundles["actions"]
    bundles["actions"].restore()


@cache
def hidden_cases() -> tuple[Case, ...]:
    """Those that nobody may get to know."""
    return tuple(case for case in select_cases(lab(), seed=1).cases if case.visibility is Visibility.HIDDEN)


def told(files: Iterable[tuple[str, bytes]]) -> set[str]:
    """The hidden cases of which a name, a title or a trace stands in these files; layout of a trace does not matter."""
    texts = [b"\0".join([name.encode(), content]) for name, content in files]
    whole = b"\0".join(texts)
    packed_tight = re.sub(rb"\s+", b"", whole)
    known = set()
    for case in hidden_cases():
        lines = case.path.read_text(encoding="utf-8").partition("operations")[2].partition("'''")[2].splitlines()
        trace = re.sub(r"\s+", "", "".join(lines).partition("'''")[0]).encode()
        if case.path.stem.encode() in whole or case.title.encode() in whole or trace in packed_tight:
            known.add(case.name)
    return known


@pytest.mark.parametrize("name", PUBLIC)
def test_nothing_of_a_hidden_case_is_in_a_public_bundle(name: str, bundles: dict[str, Bundle]) -> None:
    """Nor any program that was graded once: some are right ones."""
    bundle = bundles[name].folder
    files = [(str(path.relative_to(bundle)), path.read_bytes()) for path in bundle.rglob("*") if path.is_file()]
    right = {path.read_bytes() for path in SAMPLES.glob("accepted/*/*.c")}

    assert told(files) == set()
    assert right.isdisjoint(content for _, content in files)
    assert not [path for path, _ in files if re.search(r"tests/|submissions/|\.sqlite|\.git/", path)]
    assert not [path for path in bundle.rglob("*") if path.is_symlink()]


def test_the_search_for_hidden_cases_finds_each_of_them() -> None:
    """In a bundle that holds them all; else the test above would show nothing."""
    files = [(file.name, file.content) for file in tree(lab(), select_cases(lab(), seed=1).cases)]

    assert told(files) == {case.name for case in hidden_cases()} != set()


def points(text: str) -> tuple[int, int]:
    """N and M, the same wherever they stand."""
    ((score, most),) = set(WORDS.findall(text))
    return int(score), int(most)


with_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed, and nothing else needs it")


@with_make
def test_the_starter_kit_grades_what_a_student_writes(starter: Bundle, tmp_path: Path) -> None:
    """First nothing, in the end all of the public part; our modules are those in the kit."""
    kit, environment = starter.folder, starter.environment
    variables = clean(environment)
    said = ran("make", "build", "check", cwd=kit, variables=variables)

    assert said.code == 2  # make's own, for the 1 of the check
    assert "Error 1" in said.err
    assert points(said.out) == (0, points(said.out)[1])

    shutil.copy(RIGHT / "llm_memory.c", kit)
    said = ran(kit / "check", cwd=tmp_path, variables=variables)
    score, most = points(said.out)

    assert (said.code, said.err, score) == (0, "", most)
    assert 0 < most < lab().rubric.max_score
    where = "import grader, reference; print(grader.__file__, reference.__file__)"
    assert ran(environment / "bin" / "python", "-c", where, cwd=tmp_path, variables=variables).out.split() == [
        str(kit / "grading" / name / "__init__.py") for name in ("grader", "reference")
    ]


def autograder(bundle: Bundle, tmp_path: Path, source: Path) -> tuple[Path, Path, dict[str, str]]:
    """The folder that the runner of Classroom 50 starts, a student's checkout, and the runner's variables."""
    slug = bundle.grading.parent
    checkout = tmp_path / "checkout"
    (checkout / "src").mkdir(parents=True)
    shutil.copy(source / "llm_memory.c", checkout / "src")
    outputs = tmp_path / "outputs"
    variables = clean(
        bundle.environment,
        **{**RUNNER, "CLASSROOM50_BUNDLE_DIR": str(slug), "GITHUB_ACTIONS": "true", "GITHUB_OUTPUT": str(outputs)},
    )
    return slug, checkout, variables


@pytest.mark.parametrize(("source", "status"), [(RIGHT, "success"), (WRONG, "failure")])
def test_classroom_50_gets_its_result(source: Path, status: str, classroom50: Bundle, tmp_path: Path) -> None:
    """In the checkout, whatever a student has put there; 0 when something was graded."""
    slug, checkout, variables = autograder(classroom50, tmp_path, source)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("kept", encoding="utf-8")
    (checkout / "result.json").symlink_to(elsewhere)
    (checkout / "release-body.md").mkdir()
    said = ran("python3", slug / "autograder.py", cwd=checkout, variables=variables)
    result = json.loads((checkout / "result.json").read_text(encoding="utf-8"))
    body = (checkout / "release-body.md").read_text(encoding="utf-8")
    score, most = result["score"], result["max-score"]

    READERS["classroom50"](json.dumps(result), View(variables=RUNNER))
    READERS["summary"](body, View())
    assert (said.code, obeyed(said.all)) == (0, [])
    assert (score == most) == (status == "success")
    assert (result["assignment"], result["submission"]) == ("a", "submit/1")
    assert points(said.out + result["part"]) == (score, most) == tuple(map(sum, zip(*_scores(result), strict=True)))
    assert points(body.replace("&#58;", ":").replace("&#59;", ";")) == (score, most)
    assert (tmp_path / "outputs").read_text(encoding="utf-8") == f"status={status}\nsummary={result['part']}\n"
    assert elsewhere.read_text(encoding="utf-8") == "kept"


def _scores(result: dict[str, Any]) -> list[tuple[int, int]]:
    return [(test["score"], test["max-score"]) for test in result["tests"]]


def sudo(folder: Path) -> str:
    """A PATH on which `sudo apt-get` has nothing to do."""
    folder.mkdir()
    (folder / "sudo").write_text('#!/bin/sh\n[ "$1" = apt-get ]\n', encoding="utf-8")
    (folder / "sudo").chmod(0o755)
    return f"{folder}:{clean(None)['PATH']}"


def test_a_check_that_could_not_be_done_is_said_to_be_that(actions: Bundle, tmp_path: Path) -> None:
    """A repository without the file has points; one in which it is ambiguous has a message, and none."""
    repository = actions.folder
    for name in ("a", "b"):
        (repository / name).mkdir()
        shutil.copy(RIGHT / "llm_memory.c", repository / name)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    said, files = workflow_ran(repository, temporary, clean(actions.environment, PATH=sudo(tmp_path / "bin")))

    assert said.code == 2
    assert obeyed(said.out)[-1].startswith("::error title=self-check::nothing was checked")
    assert files == {"GITHUB_OUTPUT": "", "GITHUB_STEP_SUMMARY": ""}
