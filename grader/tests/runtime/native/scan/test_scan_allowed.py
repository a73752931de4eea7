"""The object scan: what ordinary code may hold, and what is no order to Valgrind."""

from __future__ import annotations

import platform
from pathlib import Path

from grader.pytest_plugin.items import accepted_samples
from grader.runtime.native.project import FLAGS
from grader.runtime.native.scan.elf import Elf
from grader.runtime.native.scan.suspects import program_requests, suspects
from grader.system import process
from grader.system.process import Patience
from grader.tests.support.command import ROOT
from grader.tests.support.scanned import BYTES, accepted, below, on_x86

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


def test_the_known_good_bytes_are_really_there(tmp_path: Path) -> None:
    """The same object holds them as data, where nothing looks for code."""
    (tmp_path / "a.c").write_text(KNOWN_GOOD["the bytes as constants"][0] + "int main(void) { return 0; }")
    environment = {"PATH": "/usr/bin:/bin"}
    done = process.run(
        ["gcc", "-O2", "a.c", "-o", "a"], cwd=tmp_path, limits=Patience(wall_seconds=60), environment=environment
    )
    program = (tmp_path / "a").read_bytes()

    assert done.succeeded
    assert BYTES in program
    assert requests(program) == ()


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


@on_x86
def test_a_function_of_the_harness_is_known_by_its_secret_name(tmp_path: Path) -> None:
    """Any other name, a hidden main too, is a student's."""
    order = f".byte {_WORDS}\nret\n"
    for name, is_ours in (("secret_run", True), ("run", False), ("main", False)):
        function = f".type {name},@function\n{name}: {order}.size {name},.-{name}\n"
        (tmp_path / "a.s").write_text(f".globl _start\n_start:\nret\n{function}")
        done = process.run(
            ["gcc", "-nostdlib", "-no-pie", "a.s", "-o", "a"],
            cwd=tmp_path,
            limits=Patience(wall_seconds=60),
            environment={"PATH": "/usr/bin:/bin"},
        )

        assert done.succeeded
        assert bool(requests((tmp_path / "a").read_bytes(), "secret_")) is not is_ours, name


def test_the_object_alone_tells_the_samples_apart(tmp_path: Path) -> None:
    """Accepted samples hold nothing that is looked for; that they build without a finding is tried by their items."""
    header = ROOT / "grader" / "labs" / "paged_kv" / "llm_memory.h"
    for folder in accepted_samples("paged_kv"):
        compiled = process.run(
            ["gcc", *FLAGS, f"-I{header.parent}", "-c", str(folder / "llm_memory.c"), "-o", "a.o"],
            cwd=tmp_path,
            limits=Patience(wall_seconds=60),
            environment={"PATH": "/usr/bin:/bin"},
        )
        assert compiled.succeeded, folder.name
        elf = Elf.read((tmp_path / "a.o").read_bytes())
        assert elf is not None
        assert suspects(elf) == (), folder.name
