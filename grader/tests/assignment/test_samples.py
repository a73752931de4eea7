"""Labelled samples: whole programs, or another sample and a patch; what a person claims apart from what is computed."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from grader.assignment import samples
from grader.assignment.samples import (
    COVERING,
    KEEPS,
    LABEL,
    PATCH,
    covering_samples,
    is_patched,
    label_of,
    program_of,
    samples_in,
)
from grader.assignment.source import collect
from grader.core.errors import UsageError
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab
from grader.tests.support.command import ROOT, grade
from grader.tests.support.covering import all_known, claimed_by, covering, shown_by
from grader.tests.support.graded import all_graded

_FOLDER = ROOT / "submissions"
_PATCHED = _FOLDER / "hybrid" / "wrong_answer" / "adopts_before_free_page"


def all_samples(lab: str) -> list[Path]:
    """All samples of a lab."""
    return samples_in(_FOLDER / lab, LABS[lab].source_name)


@pytest.mark.parametrize("lab", LABS)
def test_each_label_has_its_form(lab: str) -> None:
    """Also of samples that are not graded in this run: verdict of the folder, a rule, a range of points, a base."""
    keeps = tomllib.loads((_FOLDER / lab / KEEPS).read_text(encoding="utf-8"))
    labelled = {f"{path.parent.name}/{path.name}": path for path in all_samples(lab) if (path / LABEL).exists()}
    rules = {rule.id for rule in open_lab(lab).rubric.rules}
    wrong = []
    for name, path in labelled.items():
        label = label_of(path)
        least, most = label.pop("keeps", (1, 0))
        right = label["verdict"] == path.parent.name and {*label["rules"]} <= rules and 0 <= least <= most <= 100
        wrong += [] if right and ("base" in label) == is_patched(path) else [name]

    assert wrong == []
    assert keeps.keys() == labelled.keys()
    assert all((path / LABEL).exists() for path in all_samples(lab) if path.parent.name != Verdict.ACCEPTED)


@pytest.mark.parametrize("lab", LABS)
def test_each_patch_applies(lab: str) -> None:
    """To a base of its lab, and changes it in few lines."""
    source_name = LABS[lab].source_name
    for sample in filter(is_patched, all_samples(lab)):
        base = sample.parents[1] / label_of(sample)["base"]
        lines = (sample / PATCH).read_text(encoding="utf-8").splitlines()[2:]

        assert program_of(sample, source_name) != program_of(base, source_name)
        assert sum(line.startswith(("+", "-")) for line in lines) <= 30, sample


@pytest.mark.parametrize("lab", LABS)
def test_the_chosen_samples_cover_what_all_of_them_show(lab: str) -> None:
    """Verdicts, rules of labels, attacks, styles and the table of mistakes; else: run scripts/golden."""
    written = tomllib.loads((_FOLDER / lab / COVERING).read_text(encoding="utf-8"))
    covered = {words for sample in written["samples"].values() for words in sample}
    claimed = {words for sample in all_samples(lab) for words in claimed_by(sample)}

    assert {*written["samples"]} <= {f"{sample.parent.name}/{sample.name}" for sample in all_samples(lab)}
    assert claimed - covered == set()
    assert all_known(lab) - covered == {*written["unshown"]}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("lab", LABS)
def test_a_chosen_sample_shows_what_it_was_chosen_for(lab: str) -> None:
    """Also after a change of the diagnosis; else: run scripts/golden, and read what is no longer shown."""
    samples = covering_samples(_FOLDER / lab, LABS[lab].source_name)
    chosen = tomllib.loads((_FOLDER / lab / COVERING).read_text(encoding="utf-8"))["samples"]
    missing = {}
    for sample, record, words in zip(samples, all_graded(lab, samples), chosen.values(), strict=True):
        missing[sample.name] = {*words} - shown_by(lab, sample, record)

    assert {name: words for name, words in missing.items() if words} == {}


def test_few_samples_that_show_most_come_first() -> None:
    """Until all is shown."""
    shown = {name: frozenset(words) for name, words in {"a": "xy", "b": "xyz", "c": "vw", "d": "z"}.items()}

    assert covering(shown) == {"b": frozenset("xyz"), "c": frozenset("vw")}


def test_a_sample_that_is_a_patch_is_graded_like_any_other() -> None:
    """By its folder, without --lab; and written out by scripts/sample."""
    done = grade("run", _PATCHED)
    name = _PATCHED.relative_to(_FOLDER)
    words = [sys.executable, "-I", "-m", "grader.tests.support.written_sample", str(name)]
    written = subprocess.run(words, capture_output=True, check=True)

    assert "wrong answer" in done.out.splitlines()[0]
    assert written.stdout == program_of(_PATCHED, "hybrid.py") == collect(_PATCHED, "hybrid.py", "").content


def test_a_students_folder_is_never_a_patch(tmp_path: Path) -> None:
    """Else a label and an empty patch would hand in a right program."""
    for name in (LABEL, PATCH):
        (tmp_path / name).write_bytes((_PATCHED / name).read_bytes())

    assert not is_patched(tmp_path)
    assert collect(tmp_path, "hybrid.py", "").finding is not None


@pytest.mark.parametrize(
    ("place", "base"),
    [
        ("jane", "submissions/hybrid/accepted/right"),
        ("hw3/jane", "hybrid/accepted/right"),
        ("hw3/section/jane", "../hybrid/accepted/right"),
        ("hybrid/section/jane", "accepted/right"),
        ("hybrid/accepted/deep/jane", "accepted/right"),
        ("hw3/accepted/jane", "accepted/right"),
    ],
)
def test_hand_ins_in_the_clones_own_folder_are_no_patches(
    place: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may unpack a class there."""
    monkeypatch.setattr(samples, "_SAMPLES", tmp_path / "submissions")
    for path in ("cases/hybrid/rubric.toml", "submissions/hybrid/accepted/right/hybrid.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("pass\n", encoding="utf-8")
    folder = tmp_path / "submissions" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / LABEL).write_text(f'base = "{base}"\n', encoding="utf-8")
    (folder / PATCH).write_text("", encoding="utf-8")

    assert not is_patched(folder)
    assert collect(folder, "hybrid.py", "").finding is not None


_NEEDS_BASE = 'needs a line such as base = "accepted/NAME"'
_NO_SUCH_LINE = "--- a/hybrid.py\n+++ b/hybrid.py\n@@ -1 +1 @@\n-nothing like it\n+else\n"


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("", _NEEDS_BASE),
        ('base = "accepted/nobody"\n', _NEEDS_BASE),
        ('base = "../hybrid/accepted/right"\n', _NEEDS_BASE),
        ('base = "wrong_answer/patched"\n', _NEEDS_BASE),
        ('base = "accepted/right"\n', "does not apply to its base: "),
    ],
)
def test_a_patch_that_does_not_apply_is_an_error_of_the_label(
    label: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the file, and what to write."""
    sample, right = (tmp_path / "in" / "hybrid" / name for name in ("wrong_answer/patched", "accepted/right"))
    (tmp_path / "cases" / "hybrid").mkdir(parents=True)
    (tmp_path / "cases" / "hybrid" / "rubric.toml").write_text("", encoding="utf-8")
    for folder in (sample, right):
        folder.mkdir(parents=True)
    (right / "hybrid.py").write_text("pass\n", encoding="utf-8")
    (sample / LABEL).write_text(label, encoding="utf-8")
    (sample / PATCH).write_text(_NO_SUCH_LINE, encoding="utf-8")
    monkeypatch.setattr(samples, "_SAMPLES", tmp_path / "in")

    with pytest.raises(UsageError, match=said):
        program_of(sample, "hybrid.py")
