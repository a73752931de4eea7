"""Repairs: what mends a program is among its changes, early; and variants in C that are built as one program."""

from __future__ import annotations

import subprocess
from itertools import islice
from pathlib import Path

import pytest

from grader.search.mutants import Edit
from grader.search.repairs import chosen, repairs, together

_PYTHON = """\
class Pool:
    def take(self, count):
        if count > len(self.free):
            raise ValueError("too few")
        blocks = self.free[:count]
        for block in blocks:
            block.users = 1
            self.free.remove(block)
        return blocks

    def give_back(self, blocks):
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                self.free.append(block)

    def fork(self, table):
        for shared in table:
            shared.users += 1
        return list(table)
"""
_C = """\
struct pool { int free; int used[8]; };

static int find(struct pool *pool) {
    for (int i = 0; i < 8; i++) {
        if (pool->used[i] == 0) {
            return i;
        }
    }
    return -1;
}

int take(struct pool *pool) {
    int i = find(pool);
    if (i == -1) {
        return -1;
    }
    pool->used[i] = 1;
    pool->free--;
    return i;
}

void give(struct pool *pool, int i) {
    pool->used[i]--;
    if (pool->used[i] == 0) {
        pool->free++;
    }
}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("count > len(self.free)", "count >= len(self.free)"),
        ("in reversed(blocks)", "in blocks"),
        ("            block.users -= 1\n", "            pass\n"),
        ("            shared.users += 1\n", "            shared.users = 1\n"),
        ("return list(table)", "return table"),
        ("self.free.remove(block)", "self.free.remove(count)"),
        ("if block.users == 0:", "if block.users:"),
    ],
)
def test_a_mistake_in_python_has_its_repair(right: str, wrong: str) -> None:
    """Among the first changes near its line."""
    program = _PYTHON.replace(right, wrong, 1)
    line = _PYTHON[: _PYTHON.index(right)].count("\n") + 1

    assert program != _PYTHON
    assert _place(_PYTHON, program, "python", line) < 700


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("i < 8", "i <= 8"),
        ("return -1;\n}", "return 0;\n}"),
        ("pool->used[i] = 1", "pool->used[i] = pool->free"),
        ("    pool->free--;\n", ""),
        ("if (i == -1)", "if (i == 0)"),
        ("pool->used[i]--", "pool->used[i]++"),
    ],
)
def test_a_mistake_in_c_has_its_repair(right: str, wrong: str) -> None:
    """Among the first changes near its line."""
    program = _C.replace(right, wrong, 1)
    line = _C[: _C.index(right)].count("\n") + 1

    assert _place(_C, program, "c", line) < 700


def _place(right: str, wrong: str, language: str, line: int) -> int:
    wanted = _plain(right)
    edits = enumerate(repairs(wrong.encode(), language, [line]))
    return next((place for place, edit in edits if _plain(edit.of(wrong.encode()).decode()) == wanted), 10**6)


def _plain(text: str) -> str:
    return "".join(
        letter
        for letter in text.replace("pass", "").replace("-= 1", "--").replace("+= 1", "++")
        if letter not in " \n();"
    )


def test_changes_near_the_line_come_first() -> None:
    """Two of its function for each one elsewhere, and the first of them on the line itself."""
    first = [*islice(repairs(_PYTHON.encode(), "python", [14]), 30)]
    lines = [edit.line(_PYTHON.encode()) for edit in first]

    assert lines[0] == 14
    assert sum(11 <= line <= 15 for line in lines) == 20
    assert len(set(first)) == len(first)


def test_odd_programs_have_repairs_too() -> None:
    """With an empty statement, and a macro with a body, which looks like a function; it has no variants."""
    odd = "#define POOL(p) int p##_f(int p)\nPOOL(a) {\n    ;\n    return a;\n}\n"
    content = f"{odd}{_C}".encode()
    edits = [*repairs(content, "c", [])]
    of_macro = [edit for edit in edits if edit.start < content.index(b"struct pool {")]
    text, lines = together(
        content, [*of_macro[:3], _edit(content, b"int i = 0; i < 8; i++) {", b"int i = 1; i < 8; i++) {")]
    )

    assert of_macro
    assert text.count(b"POOL(") == 2
    assert [len(span) > 0 for span in lines] == [False, False, False, True]


def test_variants_in_c_are_one_program(tmp_path: Path) -> None:
    """Each behaves as the program with its edit alone; functions without an edit are there once."""
    program = _C.encode() + b"int main(void) {\n    struct pool pool = {8, {1}};\n    int i = take(&pool);\n"
    program += b"    give(&pool, i);\n    return 16 * pool.free + i;\n}\n"
    edits = [_edit(program, b"int i = 0", b"int i = 2"), _edit(program, b"free++", b"free += 3")]
    text, lines = together(program, edits)
    (tmp_path / "all.c").write_bytes(text)
    subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", "all", "all.c"], cwd=tmp_path, check=True)
    built = (tmp_path / "all").read_bytes()
    codes = []
    for number in range(3):
        (tmp_path / "one").write_bytes(chosen(built, number))
        (tmp_path / "one").chmod(0o755)
        codes.append(subprocess.run([tmp_path / "one"], check=False).returncode)

    assert codes == [16 * 8 + 1, 16 * 8 + 2, 16 * 10 + 1]
    assert [text.splitlines()[span.start - 1].split()[1] for span in lines] == [b"int", b"void"]
    assert [any(b"_variant_" in line for line in text.splitlines() if name in line) for name in (b"take", b"main")] == [
        False,
        False,
    ]


def _edit(program: bytes, old: bytes, new: bytes) -> Edit:
    start = program.index(old)
    return Edit(start, start + len(old), new.decode())
