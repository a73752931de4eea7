"""The object scan: what ordinary code may hold, and what is no order to Valgrind."""

from __future__ import annotations

import platform
from pathlib import Path

from grader.runtime.native.compile.elf import Elf
from grader.runtime.native.compile.suspects import program_requests
from grader.system import process
from grader.system.process_tree import Patience
from grader.tests.support.scanned import BYTES, accepted, below

_WORDS = ", ".join(map(str, BYTES))

KNOWN_GOOD = {
    "the bytes as constants": [f"const unsigned char table[] = {{ {_WORDS} }};"],
    "the bytes as data": [f"unsigned char more[] = {{ {_WORDS} }};", f"static unsigned char also[] = {{ {_WORDS} }};",
                          "unsigned char use(int i);", "unsigned char use(int i) { return also[i]++; }"],
    "the words as immediates": [
        "unsigned long mix(unsigned long x);",
        "unsigned long mix(unsigned long x)",
        "{",
        "    x = (x ^ 0x0dc7c14803c7c148u) * 0x33c7c1483dc7c148u + 0xdb8748u;",
        "    x = x << 3 | x >> 61; x ^= 0x48c1c70d; x = x << 13 | x >> 51; x = x << 61 | x >> 3;",
        "    return x << 51 | x >> 13;",
        "}",
    ],
    "the words on the stack": [
        "int fill(volatile unsigned char *to);",
        "int fill(volatile unsigned char *to)",
        "{",
        f"    unsigned char all[] = {{ {_WORDS} }};",
        "    for (unsigned i = 0; i < sizeof all; i++) to[i] = all[i];",
        "    return 0;",
        "}",
    ],
    "sections, threads' data, weak and common symbols": [
        "_Thread_local int depth = 3;",
        '__attribute__((section(".data.mine"))) int other = 4;',
        '__attribute__((section(".text.mine"), noinline)) int code(void);',
        "int code(void) { return depth + other; }",
        "__attribute__((weak)) int maybe(void);",
        "int maybe(void) { return 0; }",
        "__attribute__((common)) int writev, fork;",
        "__attribute__((hot)) int warm(void);",
        "int warm(void) { return 2 + writev + fork; }",
        "__attribute__((cold)) int chill(void);",
        "int chill(void) { return 1; }",
    ],
    "functions with names of libc": [
        "int open(int a);", "int open(int a) { return a; }",
        "static int signal(int a) { return a; }", "static int poll(int a) { return open(a) + signal(a); }",
        "int use_them(void);", "int use_them(void) { return poll(3); }",
    ],
}  # fmt: skip


def requests(program: bytes, prefix: str = "?") -> tuple[int, ...]:
    """Where this program gives orders to Valgrind."""
    elf = Elf.read(program)
    assert elf is not None
    return program_requests(elf, prefix)


def test_known_good_code_is_not_suspected() -> None:
    """No finding, no point lost, and no advice; all of it in one file: a finding would name its symbol or section."""
    assert accepted(below(*(line for lines in KNOWN_GOOD.values() for line in lines))).advice == ()


def test_on_arm_an_order_begins_at_a_multiple_of_four(tmp_path: Path) -> None:
    """The five words as VEX knows them; between instructions nobody can jump."""
    words = "0x93cc0d8c,0x93cc358c,0x93cccd8c,0x93ccf58c,0xaa0a014a"
    (tmp_path / "a.s").write_text(f".globl _start\n_start:\n.long 0,{words}\n.byte 0\n.long {words}\n")
    done = process.run(
        ["gcc", "-nostdlib", "-no-pie", "a.s", "-o", "a"],
        cwd=tmp_path,
        limits=Patience(wall_seconds=60),
        environment={"PATH": "/usr/bin:/bin"},
    )
    program = bytearray((tmp_path / "a").read_bytes())
    assert done.succeeded
    assert requests(bytes(program)) == () or platform.machine() == "aarch64"

    program[18:20] = (183).to_bytes(2, "little")  # e_machine
    (address,) = requests(bytes(program))
    assert address % 4 == 0
