"""What the launcher takes from a program: files, other users and processes, system calls."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader.cli import install
from grader.core.errors import OutOfRoom
from grader.system import process, sandbox
from grader.system.confine import filters, launcher as confine
from grader.system.confine.launcher import _user, launcher, machine, user_of_this_process
from grader.system.process import Completed
from grader.system.process_tree import Patience
from grader.system.sandbox import COMPILE_LIMITS, RUN_LIMITS, workspace
from grader.tests.support.confined import LOOKING, as_root, inside

with_landlock = pytest.mark.skipif(not machine().landlock, reason="this kernel has no Landlock")

# ---------------------------------------------------------------- files and users of others


@as_root
def test_files_of_ours_elsewhere_are_closed(tmp_path: Path, bare: Callable[..., None]) -> None:
    """Also without Landlock: neither our home nor a folder of the tests; nor may it write beside its own."""
    bare("landlock")
    (tmp_path / "secret").write_text("hunter2", encoding="utf-8")
    (tmp_path / "secret").chmod(0o600)
    said = inside(f"cat /etc/shadow {tmp_path}/secret; ls {tmp_path}; touch {tmp_path}/x /etc/x /usr/x && echo wrote")

    assert said == ""


@with_landlock
@pytest.mark.parametrize("who", [(), ("user",)], ids=["as nobody", "as ourselves"])
def test_there_are_no_files_but_the_systems(tmp_path: Path, bare: Callable[..., None], who: tuple[str, ...]) -> None:
    """Whoever it runs as: what anybody may read elsewhere is closed, and nothing can be left behind."""
    bare(*who)
    (tmp_path / "secret").write_text("hunter2", encoding="utf-8")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == tmp_path.owner() and folder not in (Path("/"), Path("/tmp")):
            folder.chmod(folder.stat().st_mode | 0o055)
    here = shlex.quote(__file__)
    script = f"cat {tmp_path}/secret /etc/passwd {here} /proc/$PPID/cmdline /proc/self/environ; ls /home /proc /tmp"
    leaves = "for place in /tmp /var/tmp /dev/shm /run; do echo x >$place/left && echo left; done"
    shown = inside(f"{script}; {leaves}; echo x >own && cat own; ls /usr/lib >/dev/null && echo system")

    assert shown.split() == ["x", "system"]


@with_landlock
def test_a_compiler_reads_no_other_file() -> None:
    """Neither by #include nor by the assembler's .incbin: it fails, and no line of the file is in what is said."""
    system = Path("/etc/passwd")
    for text, path in (
        (f'#include "{system}"', system),
        (f'__asm__(".incbin \\"{system}\\"");', system),
        (f'#include "{__file__}"', Path(__file__)),
    ):
        with workspace() as work:
            work.add("a.c", f"{text}\nint a;\n".encode())
            done = work.run(["gcc", "-c", "a.c"], limits=COMPILE_LIMITS)
            lines = {line.strip() for line in path.read_bytes().splitlines() if len(line.strip()) > 20}

            assert not done.succeeded
            assert len(lines) > 0
            assert [line for line in lines if line in done.stderr + done.stdout] == []


def test_a_compiler_elsewhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a tool on the path really is may be read, and what lies beside it."""

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        folder.chmod(0o755)
        (folder / "bin" / "gcc").write_text("#!/bin/sh\necho here\n", encoding="utf-8")
        (folder / "bin" / "gcc").chmod(0o755)
        usual = sandbox._environment
        path = f"{folder}/bin:/usr/bin:/bin"
        monkeypatch.setattr(sandbox, "_environment", lambda inner: usual(inner) | {"PATH": path})

        assert inside("gcc") == "here\n"
    assert tmp_path.is_dir()


@as_root
def test_one_may_not_look_into_or_stop_another(bare: Callable[..., None]) -> None:
    """Neither us by a signal, nor our memory; by its user alone."""
    bare("landlock", "seccomp")
    said = inside(f"kill -0 {os.getpid()} && echo reached; cat /proc/{os.getpid()}/environ && echo seen")

    assert said == ""


@pytest.mark.skipif(machine().landlock < 6, reason="signals are Landlock's business since its version 6")
def test_nobody_of_our_own_user_is_reached(bare: Callable[..., None]) -> None:
    """Where student code runs as ourselves."""
    bare("user")
    said = inside(
        f"kill -0 {os.getpid()} && echo reached; cat /proc/{os.getpid()}/environ && echo seen", limits=LOOKING
    )

    assert said == ""


def _its_user(out: multiprocessing.Queue[int]) -> None:
    out.put(user_of_this_process())


@as_root
def test_processes_side_by_side_have_users_of_their_own() -> None:
    """Also forked ones; what one takes is given back with its end."""
    mine = user_of_this_process()
    context = multiprocessing.get_context("fork")
    found: set[int] = set()
    for _ in range(2):
        queue: multiprocessing.Queue[int] = context.Queue()
        process = context.Process(target=_its_user, args=(queue,))
        process.start()
        found.add(queue.get(timeout=10))
        process.join()

    assert mine == user_of_this_process()
    assert mine not in found
    assert len(found) <= 2


def test_more_gradings_than_users_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody shares one."""
    monkeypatch.setattr("grader.system.confine.launcher._COUNT", 0)
    monkeypatch.setattr("grader.system.confine.launcher._user", _user.__wrapped__)

    with pytest.raises(OutOfRoom):
        user_of_this_process()


# ---------------------------------------------------------------- system calls

_CALLS = {
    "ptrace(0, 0, 0, 0)": "sys/ptrace.h",
    "socket(2, 1, 0)": "sys/socket.h",
    "socket(1, 1, 0)": "sys/socket.h",
    "unshare(CLONE_NEWUSER)": "sched.h",
    "syscall(SYS_clone, CLONE_NEWNET | 17, 0, 0, 0, 0)": "sched.h",
    "syscall(SYS_process_vm_readv, getppid(), 0, 0, 0, 0, 0)": "sys/uio.h",
    "syscall(SYS_pidfd_open, getppid(), 0)": "sched.h",
    "syscall(SYS_io_uring_setup, 1, 0)": "sched.h",
    "syscall(SYS_bpf, 0, 0, 0)": "sched.h",
    "syscall(SYS_rt_sigqueueinfo, getppid(), 0, 0)": "sched.h",
    "prlimit(getppid(), RLIMIT_CPU, 0, 0)": "sys/resource.h",
    "setpriority(PRIO_PROCESS, getppid(), 5)": "sys/resource.h",
    'mount("a", "/", "tmpfs", 0, 0)': "sys/mount.h",
    "shmget(1, 4096, 01600)": "sys/shm.h",
}


def compiled(source: str) -> Completed:
    """What a C program does in a workspace."""
    with workspace() as work:
        work.add("a.c", f"#define _GNU_SOURCE\n{source}".encode())
        built = work.run(["gcc", "-static", "-o", "a", "a.c"], limits=COMPILE_LIMITS)
        assert built.succeeded, built.stderr.decode()
        return work.run(["./a"], limits=RUN_LIMITS)


@pytest.mark.skipif(not machine().seccomp, reason="this kernel refuses no system calls")
def test_what_no_memory_manager_needs_is_refused() -> None:
    """By the kernel, with EPERM; and clone3, whose flags no filter sees, is not there."""
    headers = "".join(
        f"#include <{header}>\n" for header in ("errno.h", "stdio.h", "unistd.h", "sys/syscall.h", *_CALLS.values())
    )
    tried = "".join(
        f'errno = 0; if ({call} != -1 || errno != EPERM) puts("{call.replace(chr(34), "")}");\n' for call in _CALLS
    )
    done = compiled(
        f"{headers}int main(void) {{ {tried} errno = 0; syscall(435, 0, 0); return errno == ENOSYS ? 7 : 8; }}"
    )

    assert (done.stdout, done.exit_code) == (b"", 7)


def test_its_filters_are_those_of_the_script() -> None:
    """What filters.py says is what the headers hold, as far as this machine's libseccomp is the one that made them."""

    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("no libseccomp here")
    for architecture in filters.ARCHITECTURES:
        text = (Path(filters.__file__).parent / f"filter_{architecture}.h").read_text(encoding="utf-8")
        if f"libseccomp {filters.version()}" not in text:
            pytest.skip(f"libseccomp {filters.version()} did not make them")

        assert filters.header(architecture) == text


_HEADERS = {
    "x86_64": "#include <asm/unistd_64.h>",
    "aarch64": "#define __ARCH_WANT_NEW_STAT\n#define __ARCH_WANT_RENAMEAT\n#define __ARCH_WANT_SET_GET_RLIMIT\n"
    "#define __ARCH_WANT_SYS_CLONE3\n#include <asm-generic/bitsperlong.h>\n#include <asm-generic/unistd.h>",
}
"""What gives the numbers of system calls on each processor, wherever it is compiled."""
_NEWEST = 450
"""The first number that the libseccomp did not know with which the tables were made (`filters.version`)."""
_ALLOW = 0x7FFF0000


def _numbers(architecture: str) -> dict[str, int]:
    """The number of each system call, by the kernel's own headers."""
    words = ["gcc", "-E", "-dM", "-D__BITS_PER_LONG=64", "-xc", "-"]
    defined = subprocess.run(words, input=_HEADERS[architecture], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = dict(re.findall(r"^#define (__NR\w*) (\w+)$", defined, re.MULTILINE))
    return {name[5:]: int(found.get(value, value)) for name, value in found.items() if name.startswith("__NR_")}


def _action(program: list[list[int]], architecture: str, call: int, arguments: dict[int, int]) -> int:
    """What a filter does with a system call: the kernel's machine, as far as our filters use it."""
    words = {0: call, 4: filters.ARCHITECTURES[architecture]}
    for number, value in arguments.items():
        words |= {16 + 8 * number: value & 0xFFFFFFFF, 20 + 8 * number: value >> 32}
    held = at = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        match code:
            case 0x20:  # load
                held = words.get(value, 0)
            case 0x54:
                held &= value
            case 0x06:  # return
                return value
            case 0x15 | 0x25 | 0x35:
                holds = {0x15: held == value, 0x25: held > value, 0x35: held >= value}[code]
                at += yes if holds else no
            case _:
                raise AssertionError(code)


def _fitting(compares: tuple[tuple[int, int, int, int], ...]) -> dict[int, int]:
    """Arguments for which a rule with these conditions applies."""
    not_equal = filters._NOT_EQUAL
    return {
        argument: first + 1 if operator == not_equal else second if operator == filters._MASKED_EQUAL else first
        for argument, operator, first, second in compares
    }


@pytest.mark.parametrize("architecture", filters.ARCHITECTURES)
def test_its_filters_have_the_numbers_of_the_kernels_headers(architecture: str) -> None:
    """On each processor: the calls that are to be refused are refused there, those that are needed are let through."""
    text = (Path(filters.__file__).parent / f"filter_{architecture}.h").read_text(encoding="utf-8")
    numbers = _numbers(architecture)
    assert len(numbers) > 290
    wanted = (
        ("confine_filter", _ALLOW, filters._confined()),
        ("natively_filter", filters._REFUSE, filters._natively()),
        ("instrumented_filter", filters._REFUSE, filters._instrumented()),
    )
    wrong = []
    for name, otherwise, rules in wanted:
        table = text.partition(f"{name}[]")[2].partition("};")[0]
        cells = re.findall(r"\{(\w+), (\w+), (\w+), (\w+)\}", table)
        program = [[int(cell, 0) for cell in row] for row in cells]
        known = {rule for rule in rules if numbers.get(rule.call, _NEWEST) < _NEWEST}
        assert len(known) > 30
        for rule in known:
            action = _action(program, architecture, numbers[rule.call], _fitting(rule.compares))
            wrong += [] if action == rule.action else [f"{name}: {rule.call} is {action:#x}"]
        for call in numbers.keys() - {rule.call for rule in known if not rule.compares}:
            fitting_none = dict.fromkeys(range(6), 0 if otherwise == _ALLOW else 0x3FFFFFFF)
            action = _action(program, architecture, numbers[call], fitting_none)
            wrong += [] if action == otherwise else [f"{name}: {call} is {action:#x}"]

    assert wrong == []


def test_on_an_unknown_processor_all_else_protects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher is compiled without a filter, and cannot refuse system calls; nothing pretends that it does."""
    monkeypatch.setattr(confine, "_FLAGS", (*confine._FLAGS, "-DNO_FILTER"))
    confine._make(tmp_path)
    found = [
        process.run([str(tmp_path / "confine"), *words, "--", "true"], cwd=tmp_path, limits=RUN_LIMITS, environment={})
        for words in (["cpu=9"], ["seccomp"])
    ]

    assert [done.exit_code for done in found] == [0, 125]
    assert found[1].stderr.startswith(b"seccomp: ")


def test_the_launcher_says_what_is_wrong_with_its_words() -> None:
    """Nothing is started, and nothing is guessed."""

    for words, said in ((["colour=red", "--", "true"], b"colour=red: Invalid"), (["cpu=1"], b"no program: Invalid")):
        done = process.run([str(launcher()), *words], cwd=Path("/"), limits=Patience(wall_seconds=9), environment={})

        assert done.exit_code == 125
        assert done.stderr.startswith(said)


@pytest.mark.parametrize(
    ("lacks", "said"),
    [
        ({"seccomp": False, "landlock": 0, "user": True}, "every file that anybody may read or change and the network"),
        (
            {"seccomp": False, "landlock": 0, "user": False},
            "every file that you may read or change, your other processes",
        ),
        ({"seccomp": False, "landlock": 6, "user": False}, "student code reaches your other processes"),
        ({"seccomp": False, "landlock": 6, "user": True}, "student code reaches the network."),
        ({"seccomp": True, "landlock": 0, "user": False}, ""),
    ],
)
def test_doctor_says_what_remains_at_the_lowest_level(
    lacks: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a sentence, and only there."""
    less = replace(machine(), bubblewrap="", **lacks)
    monkeypatch.setattr(install, "machine", lambda: less)
    monkeypatch.setattr(sandbox, "machine", lambda: less)
    monkeypatch.setattr(install, "_tried", lambda _: "")
    install.doctor()
    shown = " ".join(capsys.readouterr().out.split())

    assert ("What remains" in shown) == bool(said)
    assert said in shown
