"""The lanes: ways to link a program, of which the first that succeeds is used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

Lane = Callable[[str, Sequence[str]], list[str]]
"""Returns the command that links the objects into a program of that name."""


BEFORE, BEHIND = "before.rsp", "behind.rsp"
"""Files with the arguments before and behind the objects in a command that links a static program."""

# Only code is executable, neither the stack nor constants: scan.py searches all that is executable.


def dynamic(target: str, objects: Sequence[str]) -> list[str]:
    """Return the usual command: gcc links a dynamic program."""
    return ["gcc", "-no-pie", "-Wl,-z,noexecstack,-z,separate-code", "-o", target, *objects]


def _static(linker: str, code_apart: str) -> Lane:
    """Return a lane that links a static program with this linker; forking a static program costs half as much.

    What the harness needs of libc is linked to it beforehand (harness_objects.py).
    """

    def command(target: str, objects: Sequence[str]) -> list[str]:
        *others, native = objects
        with_libc = [f"@{BEFORE}", *others, native.replace(".o", "-libc.o"), f"@{BEHIND}"]
        return [linker, "-static", "--build-id=none", "-znoexecstack", code_apart, "-o", target, *with_libc]

    return command


def _freestanding(target: str, objects: Sequence[str]) -> list[str]:
    """Return the command that links with freestanding.c in the place of libc.

    The link fails where the student's object needs more than freestanding.c has.
    """
    code_apart = ("-znoexecstack", "-zseparate-code")
    return ["ld", "-static", "--gc-sections", *code_apart, "-o", target, *objects, "freestanding.o"]


LANES: Mapping[str, Mapping[str, Lane]] = {
    "program": {
        "static": _static("ld.gold", "--rosegment"),  # in two thirds of ld's time
        "static by ld": _static("ld", "-zseparate-code"),
        "dynamic": dynamic,
    },
    "checked": {"freestanding": _freestanding, "dynamic": dynamic},
}
"""The lanes by program, in the order in which they are tried."""


def lanes_with(known: Collection[str], only: Mapping[str, str] | None = None) -> dict[str, dict[str, Lane]]:
    """Return the lanes to try: those `known` to work here, as "program lane", and the usual one (`dynamic`).

    `only` holds, by program, the only lane to try.
    """
    return {
        program: {
            name: lane
            for name, lane in lanes.items()
            if (only is None or only[program] == name) and (lane is dynamic or f"{program} {name}" in known)
        }
        for program, lanes in LANES.items()
    }
