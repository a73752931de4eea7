"""Case files: what is wrong with one is said with its line and what to write instead; the real ones are all right."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from grader.assignment import case_files
from grader.core.case import Case
from grader.core.errors import CaseFileError
from grader.core.verdict import Visibility
from grader.labs.paged_kv.lab import lab

HEADER = """title       = "a title"
handout     = "Task 4/store"
rule        = "address"
visibility  = "public"
pool_blocks = 4
"""
FIRST = 7
"""The line of the first operation under HEADER."""

CREATED = "create_sequence 1 5 -> seq"


def written(folder: Path, operations: str, header: str = HEADER, name: str = "case") -> Path:
    """A case file of that header and those operations."""
    path = folder / "append" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{header}operations  = '''\n{operations}\n'''\n", encoding="utf-8")
    return path


def complaints(path: Path) -> list[str]:
    """What is wrong with a case file, `line: message` each."""
    with pytest.raises(CaseFileError) as caught:
        case_files.load(path, lab().grammar, seed=1)
    lines = str(caught.value).splitlines()

    assert all(line.startswith(f"{path}:") for line in lines)
    return [line.removeprefix(f"{path}:") for line in lines]


def mistakes(folder: Path, operations: str, header: str = HEADER) -> list[str]:
    """What is wrong with such a case file."""
    return complaints(written(folder, operations, header))


@cache
def real_cases() -> list[Case]:
    """The cases of the lab."""
    return case_files.load_folder(lab().cases, lab().grammar, seed=lab().rubric.seed)


@pytest.mark.parametrize(
    ("operation", "says"),
    [
        ("apend_kv 1 77 -> 0", "unknown operation 'apend_kv' (did you mean append_kv?)"),
        ("xyz 1", "unknown operation 'xyz'; known are: llm_init, create_sequence, "),
        ("append_kv 1 -> 0", "append_kv takes 2 arguments (append_kv seq_id kv_data), not 1"),
        ("append_kv 1 2 3 -> 0", "append_kv takes 2 arguments (append_kv seq_id kv_data), not 3"),
        ("llm_destroy 1 -> 0", "llm_destroy takes 0 arguments (llm_destroy), not 1"),
        ("append_kv x 2 -> 0", "seq_id of append_kv must be a number from -2147483648 to 2147483647, not 'x'"),
        ("append_kv 1 2147483648 -> 0", "kv_data of append_kv must be a number from -2147483648 to"),
        ("append_kv 1 -2147483649 -> 0", "not '-2147483649'"),
        ("append_kv 1 1.5 -> 0", "not '1.5'"),
        ("append_kv NULL 1 -> 0", "seq_id of append_kv must be a number"),
        ("@2 llm_init -1 -> NULL", "pool_size of llm_init must be a number from 0 to 1048576, not '-1'"),
        ("move_l2 1 0 16", "L1 slot of move_l2 must be a number from 0 to 15, not '16'"),
        ("unmap 1 256", "logical block of unmap must be a number from 0 to 255, not '256'"),
        ("set_kv_count 1 4097", "kv_count of set_kv_count must be a number from 0 to 4096, not '4097'"),
        ("append_kv 1 77", "append_kv has no reply; write -> 0 or -> -1"),
        ("append_kv 1 77 -> seq", "append_kv cannot return 'seq'; write -> 0 or -> -1"),
        ("append_kv 1 77 ->", "append_kv cannot return ''; write -> 0 or -> -1"),
        ("fork_sequence 1 2 -> 0", "fork_sequence cannot return '0'; write -> seq or -> NULL"),
        ("move_l2 1 0 1 -> 0", "move_l2 is a poke and returns nothing; remove '-> 0'"),
        ("@0 append_kv 1 2 -> 0", "'@0' cannot precede append_kv; write @1 to @8 or @NULL"),
        ("@9 append_kv 1 2 -> 0", "'@9' cannot precede append_kv; write @1 to @8 or @NULL"),
        ("@two append_kv 1 2 -> 0", "'@two' cannot precede append_kv"),
        ("@NULL unmap 1 0", "'@NULL' cannot precede unmap; write @1 to @8"),
        ("@NULL llm_init 64 -> NULL", "'@NULL' cannot precede llm_init; write @1 to @8"),
        ("append_kv 1 77 > 0", "cannot read 'append_kv 1 77 > 0'; write: append_kv 1 77 -> 0  # comment"),
        ("-> 0", "cannot read '-> 0'; write: append_kv 1 77 -> 0  # comment"),
        ("@2", "unknown operation '@2'"),
        ("repeat i 1-3: append_kv 1 {i} -> 0", "write: repeat i 2..301: append_kv 1 77 -> 0, with {i}"),
        ("repeat i 1..3 append_kv 1 {i} -> 0", "write: repeat i 2..301: append_kv 1 77 -> 0, with {i}"),
        ("repeat i 1..2: append_kv 1 {i/2} -> 0", "{i/2} has no value: write names and whole numbers with"),
        ("repeat i 1..2: append_kv 1 {k} -> 0", "{k} has no value: there is no k; one of: BLOCK_SIZE, "),
        ("append_kv 1 {i} -> 0", "{i} has no value: there is no i; one of: BLOCK_SIZE, "),
        ("append_kv 1 {KV_PER_BLOK+1} -> 0", "there is no KV_PER_BLOK (did you mean KV_PER_BLOCK?)"),
        ("append_kv 1 {KV_SIZE//0} -> 0", "{KV_SIZE//0} has no value: it divides by 0"),
        ("append_kv 1 {KV_SIZE**9} -> 0", "{KV_SIZE**9} has no value: write names and whole numbers with + - * // %"),
        ("repeat i 1..{KV_SIZ}: append_kv 1 {i} -> 0", "there is no KV_SIZ (did you mean KV_SIZE?)"),
        ("set_kv_count 1 {MAX_LOGICAL_BLOCKS*KV_PER_BLOCK+1}", "must be a number from 0 to 4096, not '4097'"),
        ("repeat i 1..999999999: append_kv 1 {i} -> 0", "more than 5000 operations"),
        ("append_kv 1 " + "9" * 400 + " -> 0", "kv_data of append_kv must be a number"),
        ("append_kv 1 2" + " " * 20_000 + "-> 0", "the line has more than 500 characters; write one operation a line"),
        ("repeat i 3..2: append_kv 1 {i} -> 0", "repeat counts upwards: write repeat i 2..3: "),
        ("repeat i 1.." + "9" * 5000 + ": append_kv 1 1 -> 0", ""),
    ],
)  # fmt: skip
def test_a_wrong_operation_is_named_with_its_line(tmp_path: Path, operation: str, says: str) -> None:
    """Each kind of slip has one message that says what to write instead."""
    found = mistakes(tmp_path, f"{CREATED}\n{operation}")

    assert found[0].startswith(f"{FIRST + 2 - 1}: ")
    assert says in found[0]


@pytest.mark.parametrize(
    ("operations", "line", "says"),
    [
        ("create_sequence 1 5 -> NULL", 0, "claims NULL, the reference returns seq (Task 2/returns-sequence)"),
        (f"{CREATED}\nappend_kv 2 7 -> 0", 1, "'append_kv 2 7' claims 0, the reference returns -1 (Task 4/unknown)"),
        (f"{CREATED}\nmove_l2 2 0 1", 1, "'move_l2 2 0 1' does not fit the state here: there is no sequence 2"),
        (f"{CREATED}\nmove_l2 1 3 4", 1, "'move_l2 1 3 4' does not fit the state here: "),
        (f"{CREATED}\nunmap 1 1", 1, "'unmap 1 1' does not fit the state here: "),
        (f"llm_destroy -> 0\n{CREATED}", 1, "engine @1 is not alive here; create it first, or write @NULL"),
        (f"@2 {CREATED}", 0, "engine @2 is not alive here; create it first, or write @NULL"),
        ("@2 llm_init 64 -> engine\n@2 llm_init 64 -> engine", 1, "engine @2 is still alive; destroy it first"),
        ("# only a comment", -1, "every call is refused; add calls that must succeed"),
    ],
)
def test_a_trace_that_the_handout_does_not_allow(tmp_path: Path, operations: str, line: int, says: str) -> None:
    """The claims are played on the reference before any student is involved."""
    found = mistakes(tmp_path, operations)

    assert len(found) == 1
    assert found[0].startswith(f"{FIRST + line}: ")
    assert says in found[0]


@pytest.mark.parametrize(
    ("header", "line", "says"),
    [
        ("pool_blocks = 0", 5, "pool_blocks must be a whole number from 1 to 16384, not 0"),
        ('pool_blocks = "4"', 5, "pool_blocks must be a whole number from 1 to 16384, not '4'"),
        ('pool_blocks = "{KV_SIZE-4}"', 5, "pool_blocks must be a whole number from 1 to 16384, not 0"),
        ('pool_blocks = "{KV_SIZ}"', 5, "{KV_SIZ} has no value: there is no KV_SIZ (did you mean KV_SIZE?)"),
        ("pool_blocks = true", 5, "pool_blocks must be a whole number from 1 to 16384, not True"),
        ("pool_bytes = 63", 5, "llm_init refuses fewer than 64 bytes; write it out: llm_init 63 -> NULL"),
        ("pool_blocks = 4\npool_bytes = 256", 6, "write either pool_blocks or pool_bytes, not both"),
        ("", 6, "pool_blocks is missing: write pool_blocks = 4, or an llm_init in the trace"),
        ("pool_block = 4", 5, "unknown key 'pool_block' (did you mean pool_blocks?)"),
        ("pool_blocks = 4\npool_align = 5", 6, "pool_align"),
        ("pool_blocks = 4\nweight = 0", 6, "weight must be a whole number from 1 to 100, not 0"),
        ("pool_blocks = 4\nweight = 1.5", 6, "weight must be a whole number from 1 to 100, not 1.5"),
    ],
)
def test_settings_that_do_not_fit(tmp_path: Path, header: str, line: int, says: str) -> None:
    """Sizes are checked and may not contradict each other."""
    found = mistakes(tmp_path, CREATED, HEADER.replace("pool_blocks = 4", header))

    assert any(one.startswith(f"{line}: ") and says in one for one in found), found


def test_all_mistakes_of_a_file_at_once(tmp_path: Path) -> None:
    """Every key of the header and every line of the trace speaks for itself, in the order of the lines."""
    header = 'titel = "x"\nhandout = "Task 9/x; Task 4/stor"\nrule = "adress"\nvisibility = "pubic"\npool_blocks = -1\n'
    found = mistakes(tmp_path, "apend_kv 1 1 -> 0\nappend_kv 1 -> 0\n" + CREATED, header)

    assert [int(line.partition(":")[0]) for line in found] == [1, 1, 2, 2, 3, 4, 5, FIRST, FIRST + 1]
    for said in (
        "unknown key 'titel' (did you mean title?)",
        'title is missing: write title = "..."',
        "unknown clause 'Task 9/x' of the handout",
        "unknown clause 'Task 4/stor' of the handout (did you mean Task 4/store?)",
        "unknown rule 'adress' (did you mean address?)",
        "unknown visibility 'pubic' (did you mean public?)",
    ):
        assert sum(said in line for line in found) == 1, said


def test_a_mistake_under_repeat_is_told_once(tmp_path: Path) -> None:
    """Three hundred copies of a sentence hide the others."""
    for operation in ("apend_kv 1 {i} -> 0", "append_kv 1 {i} -> -1", "@2 append_kv 1 {i} -> 0"):
        assert len(mistakes(tmp_path, f"{CREATED}\nrepeat i 1..3: {operation}")) == 1


def test_numbers_are_written_by_their_names(tmp_path: Path) -> None:
    """In the title, a setting, the bounds of a repeat, arguments and comments; nothing of the braces is left."""
    header = HEADER.replace("a title", "{2*BLOCK_SIZE-1} bytes").replace("= 4", '= "{L2_PT_SIZE//4}"')
    operations = "create_sequence 1 {KV_PER_BLOCK-2} -> seq  # {(KV_PER_BLOCK-2)%4} left"
    repeat = "repeat i 1..{KV_SIZE-2}: append_kv 1 {i*KV_PER_BLOCK} -> 0  # number {i}"
    case = case_files.load(written(tmp_path, f"{operations}\n{repeat}", header), lab().grammar, seed=1)
    calls = [(call.arguments, call.comment) for call in case.trace.operations if not call.implicit]

    assert (case.title, case.trace.settings["pool_blocks"]) == ("127 bytes", 4)
    assert calls == [((1, 14), "2 left"), ((1, 16), "number 1"), ((1, 32), "number 2")]


def test_a_wrong_number_in_a_title_is_said_with_its_line(tmp_path: Path) -> None:
    """As one in an operation."""
    said = mistakes(tmp_path, CREATED, HEADER.replace("a title", "{BLOK_SIZE} bytes"))

    assert said == ["1: {BLOK_SIZE} has no value: there is no BLOK_SIZE (did you mean BLOCK_SIZE?)"]


def test_a_case_without_a_clause(tmp_path: Path) -> None:
    """A semicolon alone names no sentence of the handout."""
    assert mistakes(tmp_path, CREATED, HEADER.replace("Task 4/store", " ; "))[0].startswith("2: ")


def test_all_real_cases_load() -> None:
    """At least 150, and none twice: neither by title nor by what it asks."""
    cases = real_cases()
    titles = Counter(case.title for case in cases)
    traces: dict[object, list[str]] = {}
    for case in cases:
        calls = tuple((one.target, one.name, one.arguments) for one in case.trace.operations)
        traces.setdefault((calls, case.trace.settings.get("pool_align")), []).append(case.name)

    assert len(cases) >= 150
    assert [title for title, times in titles.items() if times > 1] == []
    assert [names for names in traces.values() if len(names) > 1] == []


def test_each_rule_has_cases_and_each_hidden_case_a_public_sibling() -> None:
    """What a hidden case costs, a student can learn from a public one of the same rule."""
    rules = Counter(case.rule for case in real_cases())
    public = {case.rule for case in real_cases() if case.visibility is Visibility.PUBLIC}

    assert {rule: rules[rule] for rule in lab().grammar.rules if rules[rule] < 3} == {}
    assert [case.name for case in real_cases() if case.rule not in public] == []


def test_each_sentence_of_the_handout_has_its_case() -> None:
    """Every clause that a running program can break is named; flags are the build's business."""
    named = {clause for case in real_cases() for clause in case.handout}
    unnamed = [clause for clause in lab().grammar.clauses if clause not in named]

    assert unnamed == ["Compilation/flags"]
