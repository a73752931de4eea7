"""The ways to link a program: the first that links is taken."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = ["LANES", "Lane", "dynamic", "lanes_with"]

Lane = Callable[[str, Sequence[str]], list[str]]
"""A command that links objects to a program of that name."""


# Nothing but code can be run, neither the stack nor constants: what could be run is searched (scan.py).


def dynamic(target: str, objects: Sequence[str]) -> list[str]:
    """The usual way."""
    return ["gcc", "-no-pie", "-Wl,-z,noexecstack,-z,separate-code", "-o", target, *objects]


def _static(target: str, objects: Sequence[str]) -> list[str]:
    """Forking a static program costs half as much, and gold links libc in half the time."""
    code_apart = "-Wl,-z,noexecstack,--rosegment"
    needless = ("-fno-use-linker-plugin", "-Wl,--build-id=none")  # a tenth of the time
    return ["gcc", "-no-pie", "-static", "-fuse-ld=gold", *needless, code_apart, "-o", target, *objects]


def _freestanding(target: str, objects: Sequence[str]) -> list[str]:
    """See freestanding.c. It fails where the student's object needs more than that has."""
    code_apart = ("-znoexecstack", "-zseparate-code")
    return ["ld", "-static", "--gc-sections", *code_apart, "-o", target, *objects, "freestanding.o"]


LANES: Mapping[str, Mapping[str, Lane]] = {
    "program": {"static": _static, "dynamic": dynamic},
    "checked": {"freestanding": _freestanding, "dynamic": dynamic},
}
"""By program, in the order in which they are tried."""


def lanes_with(objects: Collection[str], only: Mapping[str, str] | None = None) -> dict[str, dict[str, Lane]]:
    """Those for which we have the objects; `only`: by program, the only one that is tried."""
    return {
        program: {
            name: lane
            for name, lane in lanes.items()
            if (only is None or only[program] == name) and (name != "freestanding" or "freestanding.o" in objects)
        }
        for program, lanes in LANES.items()
    }
