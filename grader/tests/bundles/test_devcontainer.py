"""The containers that bundles and the clone bring for macOS and Windows: valid, with all tools that are needed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft201909Validator

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
