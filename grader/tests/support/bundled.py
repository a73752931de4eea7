"""Bundles as their users run them: packed, unpacked in a root of their own, run with a clean environment.

`scripts/setup` needs a minute and the network to make a Python environment, which belongs to one root. So here a bundle
gets an environment that is made at once: third-party packages come from the environment of the tests, the grader from
the bundle. `python -m grader.tests.trials.bundles_set_up` lets each bundle set itself up.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from grader.assignment.case_files import select_cases
from grader.bundles import BUNDLES, put
from grader.labs.paged_kv.lab import lab
from grader.tests.support.command import ROOT, Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A bundle that several tests use one after the other."""

    folder: Path
    grading: Path
    """The folder with the grader."""
    environment: Path
    files: Mapping[Path, bytes]
    """What was packed."""

    @classmethod
    def of(cls, name: str, place: Path) -> Bundle:
        """Pack a bundle into a new folder, with an environment for its grader."""
        place.mkdir()
        folder = packed(name, place / "bundle")
        files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        (grading,) = folder.rglob("grading")
        return cls(folder=folder, grading=grading, environment=ready(grading, place / "environment"), files=files)

    def restore(self) -> None:
        """Let there be what was packed and nothing else, but for code that Python has compiled."""
        folders = {parent for path in self.files for parent in path.parents}
        for path in sorted(self.folder.rglob("*"), reverse=True):
            if path.is_dir() and path not in folders and path.name != "__pycache__":
                path.rmdir()
            elif not path.is_dir() and path not in self.files and path.parent.name != "__pycache__":
                path.unlink()
        for path, content in self.files.items():
            if path.read_bytes() != content:
                path.write_bytes(content)


_SPEAKS = re.compile(r"^(tools_id|environment_id|project_id)\(\) \{.*?(?:\}$|^\}$)", re.MULTILINE | re.DOTALL)


def packed(name: str, folder: Path) -> Path:
    """Put a bundle into a new folder and return the folder."""
    put(BUNDLES[name].make(lab(), select_cases(lab(), seed=lab().rubric.seed).cases), folder)
    return folder


def ready(root: Path, environment: Path) -> Path:
    """Make an environment for the grader in `root`, with the stamps that tell its set-up that nothing is missing."""
    venv.create(environment, with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    paths = [str(root), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]  # without their .pth files
    (packages / "bundle.pth").write_text("\n".join(dict.fromkeys(paths)), encoding="utf-8")
    start = environment / "bin" / "grade"
    start.write_text(f"#!{environment}/bin/python\nfrom grader.cli import main\n\nmain()\n", encoding="utf-8")
    start.chmod(0o755)
    state = environment / ".setup"
    state.mkdir()
    speaks = "\n".join(match.group() for match in _SPEAKS.finditer((root / "scripts" / "setup").read_text("utf-8")))
    known = f"root=$1 venv=$2 lock=$1/.ci/grading.lock\n{speaks}\n"
    for stamp in ("tools", "environment", "project"):
        said = _output(["sh", "-c", f"{known}{stamp}_id", "sh", str(root), str(environment)])
        (state / stamp).write_text(said, encoding="utf-8")
    return environment


def clean(environment: Path | None, **changes: str) -> dict[str, str]:
    """Return variables without those of this session; with `environment`, a set-up that needs the registry fails."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
    made = {"PAGED_KV_VENV": str(environment), "PIP_NO_INDEX": "1"} if environment is not None else {}
    return {**kept, **made, **changes}


def ran(*words: str | Path, cwd: Path, variables: Mapping[str, str]) -> Said:
    """Run a program of a bundle to its end."""
    done = subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=600,
        check=False,
    )
    said = Said(code=done.returncode, out=done.stdout.decode(), err=done.stderr.decode())

    assert str(ROOT) not in said.all.replace(sys.prefix, "")
    return said


def workflow_ran(repository: Path, temporary: Path, variables: Mapping[str, str]) -> tuple[Said, dict[str, str]]:
    """Run the shell steps of the only workflow, as a runner starts them, up to the first that fails.

    Returns the exit code and output of the last step, and the files that it wrote for the runner.
    """
    (path,) = (repository / ".github" / "workflows").iterdir()
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    said = Said(code=0, out="", err="")
    files = {name: temporary / name for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for step in job["steps"]:
        if said.code == 0 and "run" in step:
            for file in files.values():
                file.write_text("", encoding="utf-8")
            script = temporary / "step.sh"
            script.write_text(step["run"], encoding="utf-8")
            runner = {name: str(file) for name, file in files.items()}
            runner |= {"GITHUB_ACTIONS": "true", "RUNNER_TEMP": str(temporary)}
            shell = ("bash", "--noprofile", "--norc", "-e", "-o", "pipefail", script)
            said = ran(*shell, cwd=repository, variables={**variables, **runner})
    return said, {name: file.read_text(encoding="utf-8") for name, file in files.items()}


def _output(words: list[str]) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
