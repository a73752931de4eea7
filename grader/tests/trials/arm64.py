"""The grader on a whole machine with a 64-bit Arm processor, emulated: verdicts and lines as on this machine.

    python -m grader.tests.trials.arm64 FOLDER                       three machines, one after the other
    python -m grader.tests.trials.arm64 FOLDER --machine trixie      one of them; --programs 3 for fewer programs

It needs root, apt, qemu-system-aarch64 and cpio (on Debian: qemu-system-arm, cpio). Each machine is made in FOLDER from
Debian's packages for arm64 and the locked Python packages: kernel and file system, all in memory, without a network.
There `scripts/setup` and `grade doctor` run, then gradings of labelled samples and of attacks that are written in this
processor's own instructions. Each result is printed beside that of this machine. An emulated machine is about twenty
times slower than this one: a grading takes ten to twenty seconds there, all of it most of an hour. Exit code 1: a
result differs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker

from grader import pipeline
from grader.assignment.case_files import select_cases
from grader.core.errors import GraderError
from grader.core.verdict import Verdict
from grader.labs import open_lab, present
from grader.tests.support.command import ROOT
from grader.tests.support.hunting import HOSTILE
from grader.tests.support.programs import around, line_of

_ARCHITECTURE, _EMULATOR = "aarch64", "qemu-system-aarch64"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine that is made: its Debian release, its kernel, and the size of its pages."""

    suite: str
    kernel: str = "linux-image-arm64"
    page: int = 4096


MACHINES = {
    "bookworm": Machine(suite="bookworm"),
    "trixie": Machine(suite="trixie"),
    "pages-16k": Machine(suite="trixie", kernel="linux-image-arm64-16k", page=16384),
}

_PACKAGES = (
    *("base-files", "bash", "binutils", "coreutils", "debianutils", "diffutils", "findutils", "gawk"),
    *("gcc", "git", "grep", "gzip", "iproute2", "libc-bin", "libc6-dbg", "libc6-dev", "mount", "procps", "python3"),
    *("python3-pip", "python3-venv", "sed", "tar", "util-linux", "valgrind"),
)
_LOCKS = ("grading", "numpy")
_GLIBCS = (17, 26, 27, 28, 31, 34, 35, 36, 38, 39, 40, 41)
_RESULT, _ENDED = "RESULT ", "TRIAL ENDED "

_INIT = f"""#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 TERM=dumb
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/trial/wheels PIP_DISABLE_PIP_VERSION_CHECK=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t tmpfs -o mode=1777 tmpfs /tmp
ln -sf /proc/self/fd /dev/fd
ldconfig
ip link set lo up
cd /trial/project
{{
    scripts/setup --numpy && scripts/grade doctor && .venv/bin/python -I -m {__package__}.arm64 --inside /trial
    echo "{_ENDED}$?"
}} </dev/null >/dev/ttyAMA0 2>&1
sync
echo o >/proc/sysrq-trigger
sleep 60
"""

# ---------------------------------------------------------------- what is graded

_RAW = """
static long raw(long call, long a, long b, long c)
{
    register long number __asm__("x8") = call, result __asm__("x0") = a, second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    __asm__ volatile("svc #0" : "+r"(result) : "r"(number), "r"(second), "r"(third) : "memory");
    return result;
}

static void refused(long result)
{
    if (result >= 0)
        __builtin_trap();
}
"""
"""System calls without libc; `refused` crashes where one was allowed."""
_PARENT = "raw(173, 0, 0, 0)"
_CALLS = {
    "kills_its_parent": f"refused(raw(129, {_PARENT}, 9, 0));",
    "opens_a_socket": "refused(raw(198, 2, 1, 0));",
    "traces_its_parent": f"refused(raw(117, 16, {_PARENT}, 0));",
    "opens_a_file": 'refused(raw(56, -100, (long)"/etc/passwd", 0));',
}
"""By name: what is refused wherever the program runs, so that it goes on and is right."""
_ENDED_BY_VALGRIND = {
    "writes_to_every_descriptor": 'for (long end = 3; end < 64; end++) refused(raw(64, end, (long)"forged", 6));',
    "starts_a_program": 'static const char *const words[] = {"/bin/true", 0};\n'
    "    refused(raw(221, (long)words[0], (long)words, (long)&words[1]));",
}
"""What is refused natively. Valgrind makes such a call itself, and the program crashes or ends there."""
_REQUEST = """
static void ask_valgrind(void)
{
    unsigned long request[6] = {0x1001, 0, 0, 0, 0, 0};
    register unsigned long result __asm__("x3") = 0;
    register unsigned long *what __asm__("x4") = request;
    __asm__ volatile("ror x12, x12, #3\\n\\tror x12, x12, #13\\n\\tror x12, x12, #51\\n\\tror x12, x12, #61\\n\\t"
                     "orr x10, x10, x10" : "+r"(result) : "r"(what) : "x12", "cc", "memory");
}
"""
_JUMP = "    jmp_buf back;\n    if (setjmp(back) == 0)\n        longjmp(back, 1);"
_SIX = ("llm_init", "create_sequence", "free_sequence", "fork_sequence", "append_kv", "llm_destroy")
_FAULT = "    *(volatile int *)(void *)(volatile long){64} = 0; /* HERE */"


class Program(NamedTuple):
    """A program that is graded, and what must come of it."""

    lab: str
    path: str
    verdict: str
    line: int = 0
    """Of an attack, where it crashes."""
    here: bool = True
    """Whether this machine can grade it too."""

    @property
    def name(self) -> str:
        """As tables have it."""
        return "/".join([self.lab, *Path(self.path).parts[-2:]])


def samples(most: int) -> Iterator[Program]:
    """Yield of the homework in C accepted samples, and fewer of each other verdict; four of each other lab."""
    for lab in present():
        folders = sorted(path for path in (ROOT / "submissions" / lab).glob("*/*") if HOSTILE not in path.name)
        for verdict in Verdict:
            of_it = [path for path in folders if path.parent.name == verdict]
            count = most if verdict is Verdict.ACCEPTED else 2 * most // 5
            if lab != "paged_kv":
                count = {Verdict.ACCEPTED: 1, Verdict.WRONG_ANSWER: 2, Verdict.RUN_TIME_ERROR: 1}.get(verdict, 0)
            for path in _spread(of_it, count):
                yield Program(lab, str(path.relative_to(ROOT)), verdict)


def _spread(paths: Sequence[Path], count: int) -> list[Path]:
    count = min(count, len(paths))
    return [paths[number * len(paths) // count] for number in range(count)]


def attacks(folder: Path) -> Iterator[Program]:
    """Write the attacks, and what depends on the processor, to the folder, which is `programs` on the machine."""
    texts = {
        **{f"{Verdict.ACCEPTED}/{name}": around("append_kv", call, top=_RAW) for name, call in _CALLS.items()},
        **{
            f"{Verdict.RUN_TIME_ERROR}/{name}": around("append_kv", call, top=_RAW)
            for name, call in _ENDED_BY_VALGRIND.items()
        },
        f"{Verdict.ACCEPTED}/jumps_back": around("append_kv", _JUMP, top="#include <setjmp.h>\n"),
        f"{Verdict.REJECTED}/asks_valgrind": around("append_kv", "    ask_valgrind();", top=_REQUEST),
        **{f"{Verdict.RUN_TIME_ERROR}/faults_in_{call}": around(call, _FAULT) for call in _SIX},
    }
    for name, text in texts.items():
        verdict, _, _ = name.partition("/")
        file = folder / name / "llm_memory.c"
        file.parent.mkdir(parents=True)
        file.write_text(text, encoding="utf-8")
        line = line_of(text) if "HERE" in text else 0
        yield Program("paged_kv", f"/trial/programs/{name}", verdict, line, here=False)


def result(program: Program) -> dict[str, object]:
    """Grade a program, and return what its record says of it."""
    lab = open_lab(program.lab)
    selected = select_cases(lab, seed=lab.rubric.seed)
    started = time.monotonic()
    try:
        record = pipeline.grade(ROOT / program.path, lab, selected.cases, hidden=selected.hidden)
    except GraderError as error:
        return {"name": program.name, "error": str(error)}
    cause = record.causes[0] if record.causes else None
    return {
        "name": program.name,
        "verdict": record.verdict,
        "score": record.score,
        "rule": cause.rule if cause else "",
        "line": str(cause.lines[0]) if cause and cause.lines else "",
        "failed": [f"{one.stage}: {one.error}" for one in record.failed_stages],
        "protection": record.protection.level,
        "pace": record.environment.pace,
        "page": os.sysconf("SC_PAGESIZE"),
        "seconds": round(time.monotonic() - started, 1),
    }


def _all_results(programs: Sequence[Program]) -> Iterator[dict[str, object]]:
    """Yield the results of all programs, as many at once as there are processors, in the order in which they come."""
    for lab in dict.fromkeys(program.lab for program in programs):
        open_lab(lab).runtime.pace()  # what is compiled once is compiled before
    with multiprocessing.get_context("spawn").Pool(os.cpu_count(), maxtasksperchild=8) as pool:
        yield from pool.imap_unordered(result, programs)


# ---------------------------------------------------------------- the machine


def _make(machine: Machine, folder: Path, programs: Sequence[Program], written: str) -> None:
    """Make kernel and file system in the folder; packages that are there already are not fetched again."""
    root = folder / "root"
    _must("rm", "-rf", root)
    for name in ("lists/partial", "debs/partial", "sources", "wheels", "root"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _fetch_packages(machine, folder)
    for link in ("bin", "sbin", "lib"):  # all of them lead to /usr
        (root / "usr" / link).mkdir(parents=True)
        (root / link).symlink_to(f"usr/{link}")
    for package in sorted((folder / "debs").glob("*.deb")):
        with subprocess.Popen(["dpkg", "--fsys-tarfile", package], stdout=subprocess.PIPE) as content:
            tar = ["tar", "-x", "--keep-directory-symlink", "-C", str(root)]
            subprocess.run(tar, stdin=content.stdout, check=True)
    kernel = next((root / "boot").glob("vmlinuz*"))
    shutil.copy(kernel, folder / "kernel")
    for name in ("boot", "usr/lib/modules", "usr/share/doc", "usr/share/man", "usr/share/locale"):
        shutil.rmtree(root / name, ignore_errors=True)
    _set_up(root)
    _fetch_wheels(root, folder / "wheels")
    (root / "trial").mkdir()
    shutil.copytree(folder / "wheels", root / "trial" / "wheels")
    _must("git", "clone", "--quiet", ROOT, root / "trial" / "project")
    shutil.copytree(written, root / "trial" / "programs")
    (root / "trial" / "programs.json").write_text(json.dumps(programs), encoding="utf-8")
    files = "find . -print0 | cpio --null --create --format=newc --quiet >../files"
    subprocess.run(files, shell=True, cwd=root, check=True)


def _set_up(root: Path) -> None:
    """Do what the packages would do when they are configured, as far as grading needs it."""
    users = {"root": (0, "/root", "/bin/bash"), "nobody": (65534, "/nonexistent", "/usr/sbin/nologin")}
    lines = [f"{name}:x:{number}:{number}::{home}:{shell}" for name, (number, home, shell) in users.items()]
    (root / "etc" / "passwd").write_text("\n".join([*lines, ""]), encoding="utf-8")
    (root / "etc" / "group").write_text("root:x:0:\nnogroup:x:65534:\n", encoding="utf-8")
    for link, target in (("awk", "gawk"), ("cc", "gcc"), ("which", "which.debianutils"), ("sh", "bash")):
        path = root / "usr" / "bin" / link
        path.unlink(missing_ok=True)
        path.symlink_to(target)
    for name in ("proc", "sys", "dev", "tmp", "root", "run", "var/tmp", "etc/ssl/certs"):
        (root / name).mkdir(parents=True, exist_ok=True)
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():  # without them pip of some releases does not start
        shutil.copy(certificates, root / "etc" / "ssl" / "certs")
    (root / "init").write_text(_INIT, encoding="utf-8")
    (root / "init").chmod(0o755)


def _fetch_packages(machine: Machine, folder: Path) -> None:
    """Fetch the packages, with all that they need, into `debs`, from where this machine's own packages come."""
    release = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.MULTILINE)
    assert release is not None, "this is no Debian"
    for source in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("debian*.*")):
        if source.exists():
            text = re.sub(rf"\b{release[1]}\b", machine.suite, source.read_text(encoding="utf-8"))
            (folder / "sources" / f"debian{source.suffix}").write_text(text, encoding="utf-8")
    (folder / "status").write_text("", encoding="utf-8")
    places = {
        "Dir::State": folder,
        "Dir::State::Lists": folder / "lists",
        "Dir::State::status": folder / "status",
        "Dir::Cache::archives": folder / "debs",
        "Dir::Etc::sourcelist": folder / "sources" / "debian.list",
        "Dir::Etc::sourceparts": folder / "sources",
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
    }
    settings = folder / "apt.conf"
    settings.write_text("".join(f'{key} "{value}";\n' for key, value in places.items()), encoding="utf-8")
    for words in (["update", "-qq"], ["install", "-y", "-qq", "--download-only", *_PACKAGES, machine.kernel]):
        _must("env", f"APT_CONFIG={settings}", "apt-get", *words)


def _fetch_wheels(root: Path, folder: Path) -> None:
    """Fetch the locked Python packages for the machine's interpreter.

    pip takes markers to speak of the interpreter that it runs in. So it gets the lines that hold for the machine's.
    """
    version = max(re.findall(r"python3\.(\d+)$", "\n".join(map(str, (root / "usr" / "bin").iterdir())), re.MULTILINE))
    platforms = [f"--platform=manylinux_2_{glibc}_{_ARCHITECTURE}" for glibc in _GLIBCS]
    common = ["--no-deps", "--only-binary=:all:", "--implementation=cp", f"--python-version=3.{version}"]
    for lock in _LOCKS:
        text = (ROOT / ".ci" / f"{lock}.lock").read_text(encoding="utf-8")
        needed = folder.parent / f"{lock}.lock"
        needed.write_text("".join(_needed(text, f"3.{version}")), encoding="utf-8")
        where: list[str | Path] = ["-d", folder, "-r", needed]
        old = f"--platform=manylinux2014_{_ARCHITECTURE}"
        _must(sys.executable, "-m", "pip", "download", "-q", *common, old, *platforms, *where)


def _needed(lock: str, version: str) -> Iterator[str]:
    """Yield the packages of a lock that a Python of this version needs, without their markers."""
    interpreter = {"python_version": version, "python_full_version": f"{version}.0", "platform_machine": _ARCHITECTURE}
    for package in re.findall(r"^[^ #].*\n(?: .*\n)*", lock, re.MULTILINE):
        marker = re.search(r" ; ([^\\\n]*)", package)
        if marker is None or Marker(marker[1]).evaluate(interpreter):
            yield package.replace(marker[0], " ") if marker else package


def _booted(folder: Path, most_seconds: float) -> Iterator[str]:
    """Start the machine, yield what it prints, line by line, and end it."""
    processors = min(2, os.cpu_count() or 1)
    words = [
        _EMULATOR,
        *["-machine", "virt", "-cpu", "neoverse-n1", "-m", "8G", "-nographic", "-nic", "none", "-no-reboot"],
    ]
    words += ["-smp", str(processors), "-kernel", str(folder / "kernel"), "-initrd", str(folder / "files")]
    words += ["-append", "console=ttyAMA0 rdinit=/init panic=-1 quiet"]
    deadline = time.monotonic() + most_seconds
    with (
        (folder / "console").open("wb") as log,
        subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as machine,
        (folder / "console").open(encoding="utf-8", errors="replace") as printed,
    ):
        try:
            line = ""
            while time.monotonic() < deadline:
                line += printed.readline()
                if line.endswith("\n"):
                    yield line.strip()
                    line = ""
                elif machine.poll() is not None:
                    return
                else:
                    time.sleep(0.5)
            yield f"it did not end within {most_seconds / 3600:.0f} hours"
        finally:
            machine.kill()


def _must(*words: str | Path) -> None:
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


# ---------------------------------------------------------------- the tables

_ANYWHERE, _NEAR = (Verdict.TIME_LIMIT_EXCEEDED, Verdict.REJECTED), 10
"""Verdicts whose lines are compared less strictly, and how many lines they may be apart."""
_COMPARED = ("verdict", "score", "rule", "line")


def _trial(name: str, folder: Path, most: int, most_seconds: float) -> Iterator[str]:
    """Make a machine, run it, print each result, and yield what is wrong."""
    with tempfile.TemporaryDirectory() as written:
        attacking = list(attacks(Path(written)))
        programs = [*samples(most), *attacking]
        _make(MACHINES[name], folder, programs, written)
    right = {str(found["name"]): found for found in _all_results([program for program in programs if program.here])}
    by_name = {program.name: program for program in programs}
    _say(f"{name}: {len(programs)} programs; the machine starts")
    started, left, ended = time.monotonic(), set(by_name), ""
    for line in _booted(folder, most_seconds):
        if line.startswith(_ENDED):
            ended = line.removeprefix(_ENDED)
        elif not line.startswith(_RESULT):
            _say(f"    {line}")
        else:
            found = json.loads(line.removeprefix(_RESULT))
            left.discard(found["name"])
            problems = list(_problems(found, right.get(found["name"]), by_name[found["name"]], MACHINES[name]))
            shown = " ".join(str(found.get(key, "")) for key in (*_COMPARED, "error", "seconds"))
            _say(f"{'DIFFERS' if problems else 'ok':8} {found['name']}: {shown}")
            yield from (f"{name}: {found['name']}: {problem}" for problem in problems)
    yield from (f"{name}: {program}: no result" for program in sorted(left))
    if ended != "0":
        yield f"{name}: set-up, doctor or the gradings ended with {ended or 'nothing said'}"
    _say(f"{name}: {(time.monotonic() - started) / 60:.0f} minutes")


def _problems(
    found: dict[str, object], right: dict[str, object] | None, program: Program, machine: Machine
) -> Iterator[str]:
    """Yield what is wrong with a result, beside that of this machine."""
    if "error" in found:
        yield f"the grader failed: {found['error']}"
        return
    if found["verdict"] != program.verdict:
        yield f"it must be {program.verdict}"
    for key in _COMPARED:
        if right is not None and found[key] != right.get(key) and not (key == "line" and _by_chance(found, right)):
            yield f"{key} is {found[key]}, on this machine {right.get(key)}"
    if program.line and found["line"] != f"llm_memory.c:{program.line}":
        yield f"it crashes in line {program.line}"
    if found["failed"]:
        yield f"a stage failed: {found['failed']}"
    if found["protection"] != "confine":
        yield f"it was protected by {found['protection']} only"
    if found["page"] != machine.page:
        yield f"the pages have {found['page']} bytes"


def _by_chance(found: dict[str, object], right: dict[str, object]) -> bool:
    """Whether lines may differ: a program is met anywhere in its loop, and a rejected instruction is another one."""
    one, other = (int(str(result["line"]).rpartition(":")[2] or 0) for result in (found, right))
    return found["verdict"] in _ANYWHERE and one > 0 and abs(one - other) <= _NEAR


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _inside() -> int:
    """Grade the programs of this machine, and print a line for each."""
    texts = json.loads(Path("/trial/programs.json").read_text(encoding="utf-8"))
    for found in _all_results([Program(*text) for text in texts]):
        _say(_RESULT + json.dumps(found))
    return 0


def main() -> int:
    """Try all machines, or some; return 0 when each result is as it must be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", choices=MACHINES, action="append")
    parser.add_argument("--programs", type=int, default=15, help="accepted samples; two fifths of each other verdict")
    parser.add_argument("--hours", type=float, default=3.0, help="after which a machine is ended")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inside:
        return _inside()
    wrong: list[str] = []
    for name in asked.machine or MACHINES:
        place = (asked.folder / name).absolute()
        wrong += _trial(name, place, asked.programs, asked.hours * 3600)
    _say("\n".join(wrong) or f"all is on {_ARCHITECTURE} as on {platform.machine()}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
