"""The ways to link a program: the first that links is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["BEFORE", "BEHIND", "LANES", "Lane", "dynamic", "lanes_with"]

Lane = Callable[[str, Sequence[str]], list[str]]
"""A command that links objects to a program of that name."""


BEFORE, BEHIND = "before.rsp", "behind.rsp"
"""Files with what stands before and behind the objects in a command that links a static program."""

# Nothing but code can be run, neither the stack nor constants: what could be run is searched (scan.py).


def dynamic(target: str, objects: Sequence[str]) -> list[str]:
    """The usual way."""
    return ["gcc", "-no-pie", "-Wl,-z,noexecstack,-z,separate-code", "-o", target, *objects]


def _static(linker: str, code_apart: str) -> Lane:
    """Forking a static program costs half as much. What we need of libc is linked to our side beforehand (ours.py)."""

    def command(target: str, objects: Sequence[str]) -> list[str]:
        *others, native = objects
        with_libc = [f"@{BEFORE}", *others, native.replace(".o", "-libc.o"), f"@{BEHIND}"]
        return [linker, "-static", "--build-id=none", "-znoexecstack", code_apart, "-o", target, *with_libc]

    return command


def _freestanding(target: str, objects: Sequence[str]) -> list[str]:
    """See freestanding.c. It fails where the student's object needs more than that has."""
    code_apart = ("-znoexecstack", "-zseparate-code")
    return ["ld", "-static", "--gc-sections", *code_apart, "-o", target, *objects, "freestanding.o"]


LANES: Mapping[str, Mapping[str, Lane]] = {
    "program": {
        "static": _static("ld.gold", "--rosegment"),  # in two thirds of the time
        "static by ld": _static("ld", "-zseparate-code"),
        "dynamic": dynamic,
    },
    "checked": {"freestanding": _freestanding, "dynamic": dynamic},
}
"""By program, in the order in which they are tried."""


def lanes_with(known: Collection[str], only: Mapping[str, str] | None = None) -> dict[str, dict[str, Lane]]:
    """Those `known` to work here, as "program lane", and the usual way; `only`: by program, the only one tried."""
    return {
        program: {
            name: lane
            for name, lane in lanes.items()
            if (only is None or only[program] == name) and (lane is dynamic or f"{program} {name}" in known)
        }
        for program, lanes in LANES.items()
    }
