"""Which programs are alike: copies in disguise are, others are not; and where they are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.classroom import similarity
from grader.classroom.similarity import Alike, FingerprintedProgram, Fingerprints, HandedIn, SimilarPair
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
_HEADER = "\n\n" + "# a line\n" * 7


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


def test_a_part_of_a_program_is_a_pair() -> None:
    """All of the half is in the whole, half of the whole in the half."""
    text = sample("paged_kv", "accepted/goto_cleanup_rollback").read_bytes()

    (pair,) = alike("paged_kv", whole=text, half=text[: len(text) // 2])

    assert pair.share == pair.shares[1] > 0.99
    assert 0.3 < pair.shares[0] < 0.7


@pytest.mark.parametrize("lab_name", _TWO)
def test_the_starter_makes_no_pair(lab_name: str) -> None:
    """Neither alone nor with a few lines of one's own; and it adds nothing to the likeness of two programs."""
    lab = open_lab(lab_name)
    starter = lab.starter[lab.source_name].read_bytes()
    few = "int a(void) { return 1; }\n" if starter.startswith(b"#include") else "def a(b):\n    return b\n"
    one, other = (sample(lab_name, name).read_bytes() for name in _TWO[lab_name])

    assert set(read(lab_name, bare=starter, begun=starter + few.encode())) == {
        "there is too little in it beside what the course gives"
    }
    (apart,) = alike(lab_name, 0, one=one, other=other)
    (together,) = alike(lab_name, 0, one=starter + one, other=starter + other)
    assert together.shares == pytest.approx(apart.shares, abs=0.05)


@pytest.mark.parametrize(("lab_name", "newline"), [("paged_kv", b"\n"), ("paged_kv", b"\r\n"), ("hybrid", b"\n")])
def test_equal_lines_lead_to_their_line_in_the_other_program(lab_name: str, newline: bytes) -> None:
    """Behind blank lines and a comment, whatever ends a line, and behind the names of classes."""
    text = sample(lab_name, _TWO[lab_name][0]).read_bytes()
    header = _HEADER.replace("#", "//") if lab_name == "paged_kv" else _HEADER
    lower = (header.encode() + text).replace(b"\n", newline)

    (pair,) = alike(lab_name, upper=text, lower=lower)
    first, second = pair.side_by_side()

    assert min(pair.shares) == 1
    assert len(first.equal) > 0.5 * len(first.lines)
    assert {there - line for line, there in first.equal.items()} == {9}
    assert {there - line for line, there in second.equal.items()} == {-9}
    assert second.lines[9:] == first.lines


@pytest.mark.parametrize("end", [b"\r", b"\f\n", b"\v\n"])
def test_other_blanks_and_ends_of_lines_make_no_difference(end: bytes) -> None:
    """gcc reads the same program."""
    text = sample("paged_kv", _TWO["paged_kv"][0]).read_bytes()

    (pair,) = alike("paged_kv", plain=text, other=text.replace(b"\n", end))

    assert min(pair.shares) == 1


def test_many_with_one_source_do_not_displace_another_pair() -> None:
    """The best pair of each submission comes first, whatever else is as much alike."""
    first, second = (sample("paged_kv", name).read_bytes() for name in _TWO["paged_kv"])
    contents = {**{f"a{number}": first for number in range(30)}, "y": second, "z": second + b"int more(void);\n"}
    handed_in = [HandedIn(name=name, content=content) for name, content in contents.items()]

    together = Alike.among(handed_in, open_lab("paged_kv"), lambda items, total, doing: iter(items))  # noqa: ARG005

    assert together.summary.startswith("436 pairs of 80 % or more in 32 submissions; shown are 200 of them")
    assert len(together.pairs) == 200
    assert {"y", "z"} in [{program.name for program in pair} for pair in together.pairs[:31]]


def test_what_a_program_repeats_is_its_own() -> None:
    """Every line of it is marked, though copydetect drops what is repeated when there is boilerplate."""
    body = "".join(f"    if (v{n} < 0 || v{n} > 255) {{ return -1; }}\n" for n in range(30))
    text = f"int check(int v)\n{{\n{body}    return 0;\n}}\n".encode()

    (pair,) = alike("paged_kv", first=text, second=text)

    assert set(range(2, 33)) <= pair.side_by_side()[0].equal.keys()


def test_what_cannot_be_compared_has_a_reason() -> None:
    """Nothing there, only blank lines, too long; it does not matter to the others."""
    text = sample("paged_kv", _TWO["paged_kv"][0]).read_bytes()

    empty, blank, long, right = read("paged_kv", empty=b"", blank=b"\n\n \n", long=b"a;\n" * 100_000, right=text)

    assert empty == "it is empty"
    assert blank == "there is too little in it beside what the course gives"
    assert long == "it is longer than 256 KiB"
    assert isinstance(right, FingerprintedProgram)


def test_bytes_that_are_no_text_are_compared() -> None:
    """Not UTF-8, NUL, invisible characters: they are shown as escapes, line for line."""
    text = sample("paged_kv", _TWO["paged_kv"][0]).read_bytes()
    odd = b"/* \xff\xfe \0 \xe2\x80\xae */ int \xc4\xd6;\n\x0c\r\n" + text

    (pair,) = alike("paged_kv", odd=odd, plain=text)
    first, _ = pair.side_by_side()

    assert {there - line for line, there in first.equal.items() if line > 3} == {-2}
    assert "\\x00" in first.lines[0]


@pytest.mark.parametrize("lab_name", ["paged_kv", "hybrid"])
@pytest.mark.parametrize("piece", ["a+", "(", '"', "a ", "class a:"])
def test_a_hostile_program_does_not_take_long(lab_name: str, piece: str) -> None:
    """The same piece everywhere: each k-gram is at each place."""
    content = (piece * (60_000 // len(piece))).encode()

    pairs = alike(lab_name, first=content, second=content)

    assert pairs[0].side_by_side()[0].equal


def test_without_copydetect_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""

    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(similarity, "import_module", missing)
    with pytest.raises(ToolMissing, match="scripts/setup --similar"):
        Fingerprints(open_lab("paged_kv"))
