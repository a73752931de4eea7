"""A search finds what is wrong, and what is left of a trace is as small as it can be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.cli.hunt import generator_of
from grader.core.errors import ExitCode, UsageError
from grader.labs import LABS, open_lab
from grader.search.hunt import shrink
from grader.search.player import FailingTrace, explicit
from grader.tests.support.command import ROOT, grade
from grader.tests.support.hunting import hunted, player_of, smallest, superfluous, unfair_to
from reference.operation import Operation

_SECONDS = 60.0
WRONG = {
    "paged_kv": ("no_copy_on_write", "append_byte_offset", "free_keeps_shared_l2", "append_waits_for_free_block"),
    "block_pool": ("double_free_noticed_late", "lowest_id_wins"),
    "scheduler": ("victim_stays_in_the_result", "reserved_is_internal"),
    "hybrid": ("cross_grows_with_text", "window_longer_than_text"),
    "offload": ("waits_for_the_computed_logits", "flushes_the_whole_block"),
}


def sample(lab: str, name: str) -> Path:
    """The folder of a labelled sample."""
    (path,) = (ROOT / "submissions" / lab).glob(f"*/{name}")
    return path


def calls(failing: FailingTrace) -> list[str]:
    """Its operations, as a case file has them."""
    return list(map(str, explicit(failing.case.trace.operations)))


@pytest.mark.thorough
@pytest.mark.parametrize("lab_name", LABS)
def test_the_smallest_traces_are_fair_and_have_nothing_superfluous(lab_name: str) -> None:
    """No operation can be left out, and every accepted sample does in them what the reference does."""
    lab, traces = open_lab(lab_name), []
    for name in WRONG[lab_name]:
        with player_of(lab, sample(lab_name, name)) as player:
            failing = smallest(player, seconds=_SECONDS)
            assert failing is not None, name
            assert len(calls(failing)) <= 12
            assert superfluous(player, failing) == []
            traces.append(failing.case)

    assert unfair_to(lab, traces) == {}


@pytest.mark.parametrize(
    ("lab_name", "name"),
    [("scheduler", "refund_of_the_last_victim_only"), ("block_pool", "append_hashes_from_the_last_item")],
)
def test_a_search_meets_two_victims_in_one_step_and_items_that_appended_tokens_reach(lab_name: str, name: str) -> None:
    """Random traces of the cases have next to none of them."""
    with player_of(open_lab(lab_name), sample(lab_name, name)) as player:
        assert hunted(player, seconds=_SECONDS) is not None


def test_only_what_needs_falling_addresses_keeps_them() -> None:
    """In every other trace addresses fall; the smallest trace says so only where it fails in no other way."""
    lab = open_lab("paged_kv")
    assert [bool(lab.random_settings(number)) for number in range(4)] == [False, True, False, True]
    falls: dict[str, set[bool]] = {}
    for name in ("lookup_ends_at_a_lower_address", "no_copy_on_write"):
        with player_of(lab, sample("paged_kv", name)) as player:
            for seed in range(3):
                failing = smallest(player, seconds=_SECONDS, seed=seed)
                assert failing is not None
                falls.setdefault(name, set()).add(bool(lab.told_settings(failing.case.trace)))

    assert falls == {"lookup_ends_at_a_lower_address": {True}, "no_copy_on_write": {False}}


@pytest.mark.parametrize("name", ["terse_with_macros", "compares_addresses_as_integers"])
def test_a_right_program_has_no_failing_trace(name: str) -> None:
    """Neither natively nor under the memory checker, wherever malloc's addresses go."""
    lab = open_lab("paged_kv")
    generate = lab.generator()
    assert generate is not None
    with player_of(lab, sample("paged_kv", name), memory_checker=True) as player:
        traces = [(generate(seed, 40), lab.random_settings(seed)) for seed in range(40)]
        cases = [case for trace, settings in traces if (case := player.case(trace, settings)) is not None]

        assert len(cases) == 40
        assert list(player.failing(cases)) == []


def test_a_long_trace_of_a_case_becomes_small() -> None:
    """Also one that the search did not make: the pool's size is in its `llm_init` then."""
    lab = open_lab("paged_kv")
    case = case_files.load(lab.cases / "append" / "three_sharers.toml", lab.grammar, seed=1)
    with player_of(lab, sample("paged_kv", "no_copy_on_write")) as player:
        whole = player.case(explicit(case.trace.operations), dict(case.trace.settings))
        assert whole is not None
        assert "pool_blocks" not in whole.trace.settings
        ((_, failing),) = player.failing([whole])
        small = shrink(player, failing)

        assert len(calls(small)) == 4
        assert small.faults[0] == failing.faults[0]


def test_what_no_case_file_may_have_is_no_case() -> None:
    """Calls of no lab, numbers out of their range, states that the handout does not know."""
    lab = open_lab("paged_kv")
    init = Operation(name="llm_init", arguments=(64,))
    with player_of(lab, sample("paged_kv", "no_copy_on_write")) as player:
        assert player.case([init]) is not None
        assert player.case([]) is None
        assert player.case([init, Operation(name="append", arguments=(1, 2))]) is None
        assert player.case([init, Operation(name="append_kv", arguments=(1,))]) is None
        assert player.case([init, Operation(name="append_kv", arguments=(1, 2**31))]) is None
        assert player.case([init, Operation(name="unmap", arguments=(1, 0))]) is None
        assert player.case([init, init]) is None
        assert player.case([init, Operation(name="llm_destroy"), init]) is not None
        assert player.case([Operation(name="append_kv", arguments=(1, 2))]) is None


def test_a_function_needs_no_engine_before_it() -> None:
    """No random trace begins with it, but cases do; and its lists have the shape that they have there."""
    lab = open_lab("hybrid")
    spec = ("full", 1, 1, 1)
    with player_of(lab, sample("hybrid", "window_longer_than_text")) as player:
        assert player.case([Operation(name="group", arguments=((("a", spec), ("b", spec)),))]) is not None
        assert player.case([Operation(name="group", arguments=((("a", spec[:2]), ("b", spec[:2])),))]) is None
        assert player.case([Operation(name="match", arguments=("a",))]) is None


def test_no_more_is_played_when_time_is_over() -> None:
    """Not even what was already asked for: each may take long."""
    lab = open_lab("block_pool")
    with player_of(lab, sample("block_pool", "remove_searches_forever")) as player:
        failing = hunted(player, seconds=_SECONDS)
        assert failing is not None
        late = replace(player, late=lambda: True)

        assert list(late.failing([failing.case])) == []
        assert shrink(player, failing, lambda: True).case.trace.operations == failing.case.trace.operations


def test_the_command_shows_the_trace_and_writes_it(tmp_path: Path) -> None:
    """As a case that the reference agrees with, and as a program that fails by itself."""
    file, program = tmp_path / "small.toml", tmp_path / "small.c"
    path = sample("paged_kv", "no_copy_on_write")
    shown = grade("hunt", str(path), "--output", str(file), "--program", str(program))

    assert shown.code == ExitCode.NOT_ACCEPTED, shown.err
    assert "The smallest trace: 4 operations" in shown.out
    assert "> append_kv 1 1 -> 0" in shown.out
    lab = open_lab("paged_kv")
    case = case_files.load(file, lab.grammar, seed=1)
    assert [operation.name for operation in case.trace.operations][-2:] == ["append_kv", "llm_destroy"]
    assert case.rule == "cow"
    assert "int main(void)" in program.read_text(encoding="utf-8")
    assert grade("explain", str(file)).code == ExitCode.ACCEPTED


def test_a_build_that_costs_points_hides_nothing_of_the_trace(tmp_path: Path) -> None:
    """A file with a `main` of its own builds all the same; the trace has its own cause, in the file too."""
    text = (sample("paged_kv", "no_copy_on_write") / "llm_memory.c").read_text(encoding="utf-8")
    (tmp_path / "llm_memory.c").write_text(f"{text}\nint main(void) {{ return 0; }}\n", encoding="utf-8")
    file, program = tmp_path / "small.toml", tmp_path / "small.c"
    shown = grade("hunt", str(tmp_path), "--output", str(file), "--program", str(program))

    assert shown.code == ExitCode.NOT_ACCEPTED, shown.err
    assert "llm_memory.c defines main" in shown.out
    assert "Seen      append_kv at operation 4" in shown.out
    assert case_files.load(file, open_lab("paged_kv").grammar, seed=1).rule == "cow"
    assert f"{program}: run it with\n  gcc" in shown.err
    assert "append_kv" in program.read_text(encoding="utf-8")


def test_a_program_that_cannot_show_what_went_wrong_has_it_as_a_comment(tmp_path: Path) -> None:
    """Such as what a device did, which only the grader follows."""
    program = tmp_path / "small.py"
    shown = grade("hunt", str(sample("offload", "flushes_the_whole_block")), "--program", str(program))

    assert shown.code == ExitCode.NOT_ACCEPTED, shown.err
    assert "# The grader saw this, but these calls alone do not show it" in program.read_text(encoding="utf-8")
    assert "The program passes: only the grader sees what went wrong" in shown.err


def test_a_trace_of_a_case_says_of_which(tmp_path: Path) -> None:
    """There is no seed then."""
    path, file = sample("paged_kv", "no_copy_on_write"), tmp_path / "small.toml"
    case = "append/three_sharers"
    assert grade("hunt", str(path), "--case", case, "--seed", "2").code == ExitCode.BAD_INPUT
    assert grade("hunt", str(path), "--case", case, "--output", str(file)).code == ExitCode.NOT_ACCEPTED
    assert case_files.load(file, open_lab("paged_kv").grammar, seed=1).title == f"append_kv goes wrong (in {case})"


def test_nothing_writes_over_a_submission(tmp_path: Path) -> None:
    """Neither what is graded, under any name, nor two results into one file."""
    file = tmp_path / "mine.c"
    file.write_bytes((sample("paged_kv", "no_copy_on_write") / "llm_memory.c").read_bytes())
    before = file.read_bytes()
    (tmp_path / "llm_memory.c").write_bytes(before)
    lab = ("--lab", "paged_kv")
    for words, message in (
        (("run", file, *lab, "--output", file), "it would overwrite a submission"),
        (("run", file, *lab, "--also", f"json={file}"), "it would overwrite a submission"),
        (("repro", file, *lab, "--output", file), "it would overwrite a submission"),
        (("hunt", tmp_path, "--program", tmp_path / "llm_memory.c"), "it would overwrite a submission"),
        (("hunt", file, *lab, "--output", tmp_path / "x", "--program", tmp_path / "x"), "--output writes to it"),
    ):
        said = grade(*map(str, words))
        assert (said.code, message in said.err) == (ExitCode.BAD_INPUT, True), said.err
    assert file.read_bytes() == (tmp_path / "llm_memory.c").read_bytes() == before


def test_a_case_file_says_which_rule_is_no_rule_of_cases(tmp_path: Path) -> None:
    """A wrong use of memory is judged in every case; the clause is that of the report."""
    file = tmp_path / "small.toml"
    grade("hunt", str(sample("paged_kv", "loop_reads_slot_16")), "--output", str(file))
    text = file.read_text(encoding="utf-8")

    assert "# memory-error is judged in every case; write the rule that this case is for" in text
    assert "Compilation/no-error" in text


def test_a_case_of_the_assignment_becomes_small() -> None:
    """Also where only Valgrind sees what goes wrong."""
    wrong = sample("paged_kv", "create_compares_unset_entry")
    shown = grade("hunt", str(wrong), "--case", "create/from_block_0")
    nothing = grade("hunt", str(sample("paged_kv", "terse_with_macros")), "--case", "append/three_sharers")

    assert shown.code == ExitCode.NOT_ACCEPTED, shown.err
    assert "The smallest trace: 2 operations" in shown.out
    assert nothing.code == ExitCode.ACCEPTED
    assert nothing.out == "Nothing goes wrong in append/three_sharers.\n"


def test_the_command_says_where_nothing_goes_wrong() -> None:
    """Or where there is nothing to play."""
    right = grade("hunt", str(sample("paged_kv", "terse_with_macros")), "--seconds", "1", "--seed", "3")
    unbuilt = grade("hunt", str(sample("paged_kv", "sign_compare")))

    nothing = "Nothing went wrong in 1 s of random traces (seed 3)."
    unseen = "It did not look for wrong uses of memory; `grade run` does."
    assert (right.code, right.out) == (ExitCode.ACCEPTED, f"{nothing} {unseen}\n")
    assert unbuilt.code == ExitCode.BAD_INPUT
    assert "cannot be built" in unbuilt.err


def test_without_the_reference_there_is_no_search() -> None:
    """As in a bundle of a lab whose oracle is nearly the solution."""
    with pytest.raises(UsageError, match="reference is not here"):
        generator_of(replace(open_lab("block_pool"), generator=lambda: None))
