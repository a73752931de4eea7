"""The containers that bundles and the clone bring for macOS and Windows: valid, with all tools that are needed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft201909Validator, ValidationError

from grader.bundles.bundle import File
from grader.bundles.platforms import BUNDLES
from grader.labs import LABS, open_lab
from grader.tests.support.command import ROOT

_COMMAND = {"type": ["string", "array", "object"], "items": {"type": "string"}}
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string", "pattern": r"^[a-z0-9./-]+(:[\w.-]+)?$"},
        "onCreateCommand": _COMMAND,
        "postCreateCommand": _COMMAND,
        "remoteUser": {"type": "string"},
        "customizations": {"type": "object"},
    },
    "required": ["image"],
    "unevaluatedProperties": False,
}
"""Of devcontainers/spec, schemas/devContainer.base.schema.json: `imageContainer` and `devContainerCommon`, as far as we
use them. Whoever needs another property copies its type from there."""

_NAME = ".devcontainer/devcontainer.json"


def container(bundle: str, lab: str) -> dict[str, Any]:
    """Return the description in a bundle."""
    files = BUNDLES[bundle].make(open_lab(lab), ())
    content: dict[str, Any] = json.loads(next(file.content for file in files if file.name == _NAME))
    return content


def installed(described: dict[str, Any]) -> set[str]:
    """Return the packages that a container installs."""
    command: str = described["onCreateCommand"]
    words = command.partition(" install ")[2].partition(" && ")[0].split()
    return {word for word in words if not word.startswith("-")}


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("bundle", ["starter", "actions"])
def test_a_container_is_valid_and_has_what_its_lab_needs(bundle: str, lab: str) -> None:
    """By the published schema; a lab in Python has no tools for programs in C but a compiler, for the sandbox."""
    Draft201909Validator(_SCHEMA).validate(container(bundle, lab))
    tools = installed(container(bundle, lab))

    assert {"gcc", "libc6-dev", "python3-venv", *open_lab(lab).runtime.packages} <= tools
    assert ({"valgrind", "gdb"} <= tools) == (open_lab(lab).runtime.language == "c")
    assert ("make" in tools) == ("Makefile" in open_lab(lab).starter)


def test_the_clone_has_a_container_with_the_tools_of_all_labs() -> None:
    """Whoever works on the grader opens the clone on the same image as students their starter."""
    described = json.loads((ROOT / _NAME).read_text(encoding="utf-8"))
    Draft201909Validator(_SCHEMA).validate(described)
    needed = {package for lab in LABS for package in open_lab(lab).runtime.packages}

    assert {"gcc", "libc6-dev", "python3-venv", *needed} <= installed(described)
    assert described["image"] == container("starter", "paged_kv")["image"]
    assert described["onCreateCommand"].endswith(" && sh scripts/setup --dev")


def test_set_up_elsewhere_names_the_container(tmp_path: Path) -> None:
    """In one sentence, before anything is made or fetched; `scripts/grade` sets up first."""
    clone = tmp_path / "clone"
    (clone / "scripts").mkdir(parents=True)
    for name in ("setup", "grade"):
        shutil.copy(ROOT / "scripts" / name, clone / "scripts")
    (tmp_path / "uname").write_text("#!/bin/sh\necho Darwin\n", encoding="utf-8")
    (tmp_path / "uname").chmod(0o755)
    for name in ("setup", "grade"):
        done = subprocess.run(
            [clone / "scripts" / name],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )

        assert (done.returncode, done.stdout) == (3, "")
        assert re.fullmatch(r"scripts/setup: .* this is Darwin\. .* dev container .* WSL.*\n", done.stderr)
    assert [path.name for path in clone.iterdir()] == ["scripts"]


def test_the_schema_refuses_what_is_misspelt() -> None:
    """Else the test above would show nothing."""
    with pytest.raises(ValidationError):
        Draft201909Validator(_SCHEMA).validate({"image": "debian:12", "onCreatedCommand": "true"})


def test_only_bundles_for_students_machines_have_a_container() -> None:
    """Gradescope and Classroom 50 grade on machines of their own."""
    names = {bundle for bundle, entry in BUNDLES.items() if any(file.name == _NAME for file in entry.make(_LAB, ()))}

    assert names == {"starter", "actions"}


_LAB = open_lab("paged_kv")


def test_the_container_sets_the_grader_up(tmp_path: Path) -> None:
    """Its command, by a shell, with a `sudo` that only notes what it was asked to do."""
    files: dict[str, File] = {file.name: file for file in BUNDLES["starter"].make(_LAB, ())}
    asked = tmp_path / "asked"
    for name, text in {
        "bin/sudo": f'echo "$@" >> {asked}',
        "grading/scripts/setup": f'echo "set up" >> {asked}',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    shell = shutil.which("sh")
    assert shell is not None
    command = container("starter", "paged_kv")["onCreateCommand"]
    subprocess.run([shell, "-c", command], cwd=tmp_path, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, check=True)
    update, install, done = asked.read_text(encoding="utf-8").splitlines()

    assert files["grading/scripts/setup"].runs
    assert files[".gitattributes"].content == b"* text=auto eol=lf\n"
    assert update == "apt-get update"
    assert install.startswith("DEBIAN_FRONTEND=noninteractive apt-get install -y ")
    assert done == "set up"
