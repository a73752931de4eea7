"""Public bundles from the start: each must set itself up, with the network, then grade without it, and import nothing
that is beside the submission.

    python -m grader.tests.trials.bundles_set_up             in folders of this machine
    python -m grader.tests.trials.bundles_set_up --root DIR  in a root of its own, where nothing else is; as root

To make such a root: debootstrap --variant=minbase --include=python3,git,ca-certificates bookworm DIR; then copy the
files of /etc for names, packages and certificates into it, and mount /proc and /dev there. The trial changes the root.
It takes minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from grader.tests.support.bundled import packed
from grader.tests.support.command import SAMPLES
from grader.tests.support.decoy_modules import imported_beside, put_modules_beside
from grader.tests.support.readers import RUNNER

_PROGRAMS = {"right": SAMPLES / "accepted" / "yoda_crlf", "wrong": SAMPLES / "wrong_answer" / "cow_copies_60_bytes"}
_WORDS = re.compile(r"public part: (\d+) of (\d+) points; hidden cases not run here")
_SUDO = '#!/bin/sh\nexec "$@"\n'


def main() -> int:
    """Try all bundles; return 0 when each behaved as it must, else 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path)
    root: Path | None = parser.parse_args().root
    (root / "tmp" if root is not None else Path(tempfile.gettempdir())).mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="bundles-", dir=root / "tmp" if root is not None else None))
    place.chmod(0o755)
    try:
        wrong = [line for name in _LIVES for line in _life(name, place, root)]
    finally:
        shutil.rmtree(place, ignore_errors=True)
    sys.stdout.write(("\n".join(wrong) or "all bundles did what they must") + "\n")
    return int(bool(wrong))


def _life(name: str, place: Path, root: Path | None) -> list[str]:
    """Set a bundle up and grade both programs with it; return the problems."""
    bundle = packed(name, place / name)
    if name == "actions":
        _unrolled(bundle)
    wrong = []
    for program, sample in _PROGRAMS.items():
        (bundle / "checkout").mkdir(exist_ok=True)
        for folder in (bundle, bundle / "checkout"):
            shutil.copy(sample / "llm_memory.c", folder)
            put_modules_beside(folder)
        started = time.monotonic()
        done = _shell(_LIVES[name], bundle, root)
        seconds = time.monotonic() - started
        said = set(_WORDS.findall(done.stdout))
        right = len(said) == 1 and all((score == most) == (program == "right") for score, most in said)
        sys.stdout.write(f"{name}, {program}: exit code {done.returncode}, {sorted(said)}, {seconds:.1f} s\n")
        sys.stdout.flush()
        if not right or (done.returncode == 0) != (program == "right" or name == "classroom50"):
            wrong.append(f"{name}, {program}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        imported = {*imported_beside(bundle), *imported_beside(bundle / "checkout")}
        if imported:
            wrong.append(f"{name}, {program}: {', '.join(sorted(imported))} beside the submission was imported")
    return wrong


def _unrolled(bundle: Path) -> None:
    """Write the workflow's shell steps as one script that runs each in a shell as a runner starts it."""
    (path,) = (bundle / ".github" / "workflows").iterdir()
    (job,) = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step["run"] for step in job["steps"] if "run" in step]
    for number, step in enumerate(steps):
        (bundle / f"step{number}.sh").write_text(step, encoding="utf-8")
    lines = [f"bash --noprofile --norc -e -o pipefail step{number}.sh || exit $?" for number in range(len(steps))]
    (bundle / "steps.sh").write_text("\n".join(lines), encoding="utf-8")
    (bundle / "bin").mkdir()
    (bundle / "bin" / "sudo").write_text(_SUDO, encoding="utf-8")
    (bundle / "bin" / "sudo").chmod(0o755)


def _shell(command: str, bundle: Path, root: Path | None) -> subprocess.CompletedProcess[str]:
    inside = bundle if root is None else Path("/") / bundle.relative_to(root)
    words = ["sh", "-c", f"cd {inside} && {command}"]
    kept = {name: value for name, value in os.environ.items() if re.match("LANG$|PIP_|SSL_|https?_proxy$", name)}
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = {**kept, **RUNNER, "PATH": path, "HOME": "/", "RUNNER_TEMP": str(inside / "runner")}
    variables |= {"GITHUB_OUTPUT": str(inside / "output"), "GITHUB_STEP_SUMMARY": str(inside / "summary")}
    variables |= {"GITHUB_ACTIONS": "true", "CLASSROOM50_BUNDLE_DIR": str(inside / "autograders" / "paged-kv")}
    return subprocess.run(
        ["chroot", str(root), *words] if root is not None else words,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


_LIVES = {
    "starter": "./check",
    "classroom50": "mkdir -p runner checkout && cd checkout && python3 ../autograders/paged-kv/autograder.py",
    "actions": 'mkdir -p runner && rm -rf checkout && PATH="$PWD/bin:$PATH" sh steps.sh',
}
"""The command that a user types, or a runner starts, in each bundle."""

if __name__ == "__main__":
    sys.exit(main())
