"""pytest shows cases and labelled submissions as items of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from grader.assignment.samples import covering_samples, samples_in
from grader.core.verdict import Verdict
from grader.labs.paged_kv.lab import lab
from grader.pytest_plugin.items import may_get
from grader.tests.support.command import ROOT, SAMPLES, environment
from grader.tests.support.graded import graded
from grader.tests.support.toy_house import house_with_toys
from grader.tests.support.toy_lab import WRONG_RING

WRONG = SAMPLES / "wrong_answer" / "cow_copies_60_bytes"
APPEND = "cases/paged_kv/append"


def shown(*arguments: str | Path, root: Path = ROOT) -> tuple[int, dict[str, str], str]:
    """Run pytest: its exit code, the word for each item by its name, and all that it says.

    It loads no other plugin but the one that the configuration needs: importing them all takes a third of its time.
    """
    plugins = ("-p", "grader.pytest_plugin", "-p", "pytest_timeout", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-rA", *map(str, arguments)],
        cwd=root,
        env=environment(root) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=200,
        check=False,
    )
    text = done.stdout.decode() + done.stderr.decode()
    words = re.findall(r"^(PASSED|FAILED|ERROR) \S*?([^/\s]+\.(?:toml|c)(?:::\S+)?)", text, re.MULTILINE)
    return done.returncode, {name.rpartition("::")[2]: word for word, name in words}, text


@cache
def wrong() -> tuple[int, dict[str, str], str]:
    """All append cases on a program with one defect."""
    return shown(APPEND, "--submission", WRONG)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy in which something may be broken."""
    return house_with_toys(tmp_path_factory.mktemp("house"))


def test_each_case_is_an_item_with_its_own_result() -> None:
    """The items that fail are the cases that the record says fail."""
    code, words, _ = wrong()
    outcomes = [one for one in graded("paged_kv", WRONG).outcomes if one.case.startswith("append/")]

    assert code == 1
    assert len(words) == len(outcomes) == len(list((ROOT / APPEND).glob("*.toml")))
    assert {f"append/{name}" for name, word in words.items() if word == "FAILED"} == {
        one.case for one in outcomes if not (one.passed and one.clean)
    }
    assert set(words.values()) == {"PASSED", "FAILED"}


def test_labelled_submissions_are_items_only_without_the_option() -> None:
    """With it, one submission is asked about and no other."""
    folder = SAMPLES.relative_to(ROOT) / "compile_error" / "sign_compare"
    code, words, _ = shown(folder)

    assert (code, words) == (0, {"sign_compare": "PASSED"})
    assert shown(folder, "--submission", WRONG)[0] == 5  # nothing was collected


@pytest.fixture(scope="module")
def mislabelled(house: Path) -> tuple[int, dict[str, str], str]:
    """One case and all samples of the copy, without the option; the label of one sample is wrong."""
    samples = house / "submissions" / "paged_kv"
    label, keeps = samples / "wrong_answer" / "all_null" / "expect.toml", samples / "keeps.toml"
    texts = [path.read_text(encoding="utf-8") for path in (label, keeps)]
    label.write_text(re.sub(r"verdict\s*=.*", 'verdict = "memory_leak"', texts[0]), encoding="utf-8")
    keeps.write_text(re.sub(r"(wrong_answer/all_null.*=).*", r"\1 [50, 60]", texts[1]), encoding="utf-8")
    try:
        return shown(f"{APPEND}/copy_takes_all_64_bytes.toml", "submissions/paged_kv", root=house)
    finally:
        label.write_text(texts[0], encoding="utf-8")
        keeps.write_text(texts[1], encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "graded_too"),
    [
        (("-o", "testpaths=submissions/hybrid"), False),
        (("-o", "testpaths=submissions/hybrid", "--all-samples"), True),
        (("submissions/hybrid/wrong_answer",), True),
    ],
    ids=["covering", "all", "given"],
)
def test_samples_that_cover_the_lab_are_items_and_others_on_demand(
    arguments: tuple[str, ...], *, graded_too: bool
) -> None:
    """With --all-samples, or where a path above them is given."""
    folder = ROOT / "submissions" / "hybrid"
    covering = covering_samples(folder, "hybrid.py")
    other = next(sample for sample in samples_in(folder, "hybrid.py")[::-1] if sample not in covering)
    one = next(sample for sample in covering if sample.parent == other.parent)
    text = shown("--collect-only", "-q", *arguments)[2]

    assert f"/{one.name}/" in text
    assert (f"/{other.name}/" in text) == graded_too


def test_a_wrong_label_is_told(mislabelled: tuple[int, dict[str, str], str]) -> None:
    """Verdict, points and rule of expect.toml, each with what came out."""
    code, words, text = mislabelled
    samples = {name: word for name, word in words.items() if name != "copy_takes_all_64_bytes"}

    assert code == 1
    assert samples == {"all_null": "FAILED", "sign_compare": "PASSED", "yoda_crlf": "PASSED"}
    assert "expect.toml says verdict memory_leak, the folder wrong_answer" in text
    assert "keeps 0 points, may keep 50 to 60" in text
    assert "pytest_plugin/items.py" not in text


def test_another_lab_in_c_has_items_too(house: Path, tmp_path: Path) -> None:
    """Its cases on its accepted sample and on a submission, and its samples."""
    (tmp_path / "ring.c").write_text(WRONG_RING, encoding="utf-8")
    code, words, _ = shown("cases/ring", "submissions/ring", root=house)
    cases = {"all_or_none", "empty", "in_order", "refuses", "wraps"}

    assert (code, words) == (0, dict.fromkeys({*cases, "right", "ends_at_the_last_slot"}, "PASSED"))
    assert shown("cases/ring", "--submission", tmp_path, root=house)[:2] == (
        1,
        dict.fromkeys(cases, "PASSED") | {"wraps": "FAILED"},
    )


@pytest.mark.parametrize(("release", "more"), [(12, {}), (16, {Verdict.ACCEPTED: (100, 100)})])
def test_of_an_attack_another_gcc_may_make_something_else(release: int, more: dict[Verdict, tuple[int, int]]) -> None:
    """What its label says holds with the gcc of the labels; `elsewhere` adds to it with others only."""
    chosen = replace(lab(), labels_hold=lambda: release == 12)
    label = {"keeps": [0, 0], "elsewhere": {"accepted": [100, 100]}}

    assert may_get(chosen, label, Verdict.COMPILE_ERROR) == {Verdict.COMPILE_ERROR: (0, 0)} | more
    assert may_get(chosen, {"keeps": [90, 94]}, Verdict.WRONG_ANSWER) == {Verdict.WRONG_ANSWER: (90, 94)}
