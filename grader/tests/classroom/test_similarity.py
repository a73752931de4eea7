"""Which programs are alike: copies in disguise are, others are not; and where they are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom import similarity
from grader.classroom.similarity import FingerprintedProgram, Fingerprints, HandedIn, SimilarPair
from grader.core.errors import ToolMissing
from grader.labs import open_lab
from grader.tests.support.command import ROOT
from grader.tests.support.disguised import disguised

_TWO = {
    "paged_kv": ("wrong_answer/no_copy_on_write", "accepted/goto_cleanup_rollback"),
    "block_pool": ("accepted/class_hierarchy", "accepted/verbose_beginner"),
    "scheduler": ("accepted/policy_classes", "accepted/few_lines"),
    "hybrid": ("accepted/strategies", "accepted/plain"),
    "offload": ("accepted/class_tree", "accepted/while_loops"),
}
"""By lab two programs that were written independently."""


def sample(lab_name: str, name: str) -> Path:
    """The file of a labelled sample."""
    return ROOT / "submissions" / lab_name / name / open_lab(lab_name).source_name


def read(lab_name: str, **contents: bytes) -> list[FingerprintedProgram | str]:
    """Read programs, each by its name; the reason for one that cannot be compared."""
    fingerprints = Fingerprints(open_lab(lab_name))
    return [fingerprints.program(HandedIn(name=name, content=content)) for name, content in contents.items()]


def alike(lab_name: str, threshold: float = 0.8, **contents: bytes) -> list[SimilarPair]:
    """Compare programs, which are all comparable."""
    programs = [program for program in read(lab_name, **contents) if isinstance(program, FingerprintedProgram)]
    assert len(programs) == len(contents)
    return [pair for pairs in Fingerprints(open_lab(lab_name)).pairs(programs, threshold) for pair in pairs]


@pytest.mark.parametrize("lab_name", _TWO)
def test_a_disguised_copy_is_a_pair_and_another_program_is_not(lab_name: str) -> None:
    """Names, comments and layout do not matter."""
    one, other = (sample(lab_name, name) for name in _TWO[lab_name])
    copy = disguised(one.read_text(encoding="utf-8"), one.suffix)
    assert len(set(copy.split("\n")) & set(one.read_text(encoding="utf-8").split("\n"))) < 40

    (pair,) = alike(lab_name, original=one.read_bytes(), other=other.read_bytes(), copy=copy.encode())

    assert [program.name for program in pair.programs] == ["original", "copy"]
    assert min(pair.shares) > 0.9


@pytest.mark.parametrize("end", [b"\r", b"\f\n", b"\v\n"])
def test_other_blanks_and_ends_of_lines_make_no_difference(end: bytes) -> None:
    """gcc reads the same program."""
    text = sample("paged_kv", _TWO["paged_kv"][0]).read_bytes()

    (pair,) = alike("paged_kv", plain=text, other=text.replace(b"\n", end))

    assert min(pair.shares) == 1


def test_what_cannot_be_compared_has_a_reason() -> None:
    """Nothing there, only blank lines, too long; it does not matter to the others."""
    text = sample("paged_kv", _TWO["paged_kv"][0]).read_bytes()

    empty, blank, long, right = read("paged_kv", empty=b"", blank=b"\n\n \n", long=b"a;\n" * 100_000, right=text)

    assert empty == "it is empty"
    assert blank == "there is too little in it in addition to what the course gives"
    assert long == "it is longer than 256 KiB"
    assert isinstance(right, FingerprintedProgram)


def test_without_copydetect_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(similarity, "import_module", missing)
    with pytest.raises(ToolMissing, match="scripts/setup --similar"):
        Fingerprints(open_lab("paged_kv"))
