"""The containers that bundles and the clone bring for macOS and Windows: valid, with all tools that are needed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema_rs import Draft201909Validator

from grader.bundles import BUNDLES
from grader.labs import LABS, open_lab

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
    assert ({"valgrind", "gdb", "make"} <= tools) == (open_lab(lab).runtime.language == "c")
