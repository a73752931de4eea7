"""`scripts/bench`: measure, print a table or JSON, and report by the exit code whether every target is met."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grader.core.errors import ExitCode, GraderError
from grader.core.verdict import Verdict
from grader.labs import LABS

if TYPE_CHECKING:
    from grader.bench.targets import Figure, FigureGroup

_SUBMISSIONS = Path(__file__).parents[2] / "submissions"
_DESCRIPTION = """\
Measure what grading costs: ratios of CPU time in each round, and their medians.

G is the CPU time of the handout's `gcc -c` of the submission, V that of stock Valgrind on an empty program. "naive"
starts a native and a Valgrind process for every case, with the same driver, reference and Valgrind options as ours
but without a sandbox, linked with the system's libc as the handout links it. An edit is that of a wrong program, up to
the first result that `grade watch` shows, in a process that has graded before. `grade run` is started by the shell,
with its scripts; the lines of its processes and stages add up to the whole."""

_EXAMPLES = """\
exit code: 0 every target is held, 1 one is missed, 2 a wrong option, 3 the grader's own fault, 130 interrupted

examples:
  scripts/bench                       everything, under three minutes
  scripts/bench --quick               the main lines, half a minute
  scripts/bench --rounds 25           more certainty
  scripts/bench --json > now.json     a list of {name, value, target, held}
  scripts/bench --submission submissions/paged_kv/accepted/c11_showcase
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and end the process with an exit code."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:  # an interrupt may come during the imports, which take a moment
        from grader.bench.subject import prepared  # noqa: PLC0415
        from grader.bench.targets import measure  # noqa: PLC0415

        with prepared(options.submission, options.lab) as subject:
            measured = measure(subject, options.rounds, _tell, quick=options.quick)
        code = report(measured, as_json=options.json)
    except KeyboardInterrupt:
        _tell("")
        sys.stderr.write("bench: interrupted\n")
        code = ExitCode.INTERRUPTED
    except GraderError as error:
        _tell("")
        sys.stderr.write(f"bench: {error}\n")
        code = error.exit_code
    sys.exit(code)


def report(groups: Sequence[FigureGroup], *, as_json: bool) -> ExitCode:
    """Print the figures and return the exit code."""
    figures = [figure for group in groups for figure in group.figures]
    rows = [
        {
            "name": figure.name,
            "value": figure.value,
            "target": None if figure.target is None else figure.target.limit,
            "held": figure.held,
        }
        for figure in figures
    ]
    _tell("")
    sys.stdout.write(json.dumps(rows, indent=1) + "\n" if as_json else as_table(groups))
    return ExitCode.NOT_ACCEPTED if any(figure.held is False for figure in figures) else ExitCode.ACCEPTED


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the main lines only")
    parser.add_argument("--rounds", type=_positive, default=9, metavar="N", help="measure everything N times (9)")
    parser.add_argument("--json", action="store_true", help="print a list of {name, value, target, held}")
    in_c = [name for name in LABS if LABS[name].source_name.endswith(".c")]
    parser.add_argument("--lab", choices=in_c, default="paged_kv", help="the assignment, one in C")
    parser.add_argument("--submission", type=Path, metavar="PATH", help="what is graded (an accepted sample)")
    options = parser.parse_args(arguments)
    if options.submission is None:
        options.submission = max((_SUBMISSIONS / options.lab / Verdict.ACCEPTED).iterdir())
    return options


def _positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return int(text)


def _tell(doing: str) -> None:
    """Write a progress line to the terminal; the next one overwrites it."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{doing}")
        sys.stderr.flush()


def as_table(groups: Iterable[FigureGroup]) -> str:
    """Return the figures as a table for people: one line for each figure, at most 100 columns."""
    lines = []
    for group in groups:
        lines += ["", f"{group.title:52}{'value':>9}  {'single rounds':19}target".rstrip()]
        lines += [_line(figure) for figure in group.figures]
    return "".join(f"{line}\n" for line in lines[1:])


def _line(figure: Figure) -> str:
    spread = f"{_shown(figure.low)} .. {_shown(figure.high)}" if figure.low != figure.high else ""
    status = {None: "", True: "held", False: "MISSED"}[figure.held]
    target = "" if figure.target is None else str(figure.target)
    return f"  {figure.name:50}{_shown(figure.value):>9}  {spread:19}{target:11}{status}".rstrip()


def _shown(value: float) -> str:
    """Format a value with enough digits to compare it with a target; a whole number has no decimals."""
    if value == int(value):
        return f"{value:,.0f}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 3
    return f"{value:,.{digits}f}"


if __name__ == "__main__":
    main()
