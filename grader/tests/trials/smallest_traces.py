"""`python -m grader.tests.trials.smallest_traces [--found] [LAB]...`: a search finds what is wrong with the samples.

For each lab: how many of the wrong samples that build a search finds within 10 CPU seconds (`paged_kv`) or 5, the
median number of operations of the smallest traces, whether any operation of them can be left out, and whether all
accepted samples do right in them. No search may hold anything against an accepted sample either. What a search does
not find begins with the first failing case of the sample's record. About an hour; with --found only the search is
tried, which takes a quarter of that.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grader.assignment import case_files
from grader.assignment.samples import samples_in
from grader.core.case import Case
from grader.core.verdict import Verdict
from grader.labs import LABS, open_lab
from grader.search.hunt import fails, shrink
from grader.search.player import FailingTrace, TracePlayer, explicit
from grader.tests.support.command import ROOT
from grader.tests.support.graded import graded
from grader.tests.support.hunting import HOSTILE, accepted, hunted, player_of, smallest, superfluous, unfair_to

_SECONDS = {"paged_kv": 10.0}
_OTHERS = 5.0
_NEEDED = 0.95
_ONLY_FOUND = "--found"
_NOT_PLAYED = (Verdict.ACCEPTED, Verdict.COMPILE_ERROR, Verdict.REJECTED)
"""The verdicts, which are the names of folders, of programs that are right or that nothing can be played on."""


@dataclass(frozen=True, slots=True)
class Traced:
    """What became of one sample."""

    name: str
    by_search: bool
    case: Case | None
    superfluous: tuple[str, ...] = ()


def main(names: list[str]) -> int:
    """Try these labs, and print a paragraph for each."""
    labs = [name for name in names if name != _ONLY_FOUND] or list(LABS)
    if _ONLY_FOUND in names:
        return 1 if sum(map(_found, labs)) else 0
    return 1 if sum(map(_lab, labs)) else 0


def _found(name: str) -> int:
    paths = list(_wrong(name))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(zip(paths, pool.map(partial(_is_found, name), paths), strict=True))
    share = sum(is_found for _, is_found in results) / len(results)
    missed = [path.name for path, is_found in results if not is_found]
    sys.stdout.write(f"{name}: {100 * share:.1f} % of {len(results)} found by a search; not {', '.join(missed)}\n")
    sys.stdout.flush()
    return int(share < _NEEDED)


def _is_found(lab_name: str, path: Path) -> bool:
    with player_of(open_lab(lab_name), path) as player:
        return hunted(player, seconds=_SECONDS.get(lab_name, _OTHERS)) is not None


def _lab(name: str) -> int:
    lab = open_lab(name)
    paths = list(_wrong(name))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(partial(_traced, name), paths))
        accused = list(filter(None, pool.map(partial(_accused, name), accepted(lab))))
    traced = [result.case for result in results if result.case is not None]
    unfair = unfair_to(lab, traced)
    by_search = sum(result.by_search for result in results) / len(results)
    lengths = [len(explicit(case.trace.operations)) for case in traced]
    lines = [
        f"{name}: {100 * by_search:.1f} % of {len(results)} found by a search, {len(traced)} have a smallest trace",
        f"  operations: median {statistics.median(lengths)}, most {max(lengths)}",
        *(f"  no trace: {result.name}" for result in results if result.case is None),
        *(f"  not found by the search: {result.name}" for result in results if not result.by_search),
        *(
            f"  superfluous in {result.name}: {'; '.join(result.superfluous)}"
            for result in results
            if result.superfluous
        ),
        *(f"  unfair to {sample}: {' | '.join(traces)}" for sample, traces in unfair.items()),
        *(f"  a search accuses a right program: {sentence}" for sentence in accused),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()
    bad = any(result.case is None or result.superfluous for result in results)
    return int(bad or bool(unfair or accused) or by_search < _NEEDED or statistics.median(lengths) > 5)


def _wrong(name: str) -> Iterator[Path]:
    source = open_lab(name).source_name
    for sample in samples_in(ROOT / "submissions" / name, source):
        if sample.parent.name not in _NOT_PLAYED and HOSTILE not in sample.name:
            yield sample


def _traced(lab_name: str, path: Path) -> Traced:
    with player_of(open_lab(lab_name), path) as player:
        failing = smallest(player, seconds=_SECONDS.get(lab_name, _OTHERS))
        by_search = failing is not None
        failing = failing or _from_case(lab_name, path, player)
        more = tuple(superfluous(player, failing)) if failing is not None else ()
    return Traced(f"{path.parent.name}/{path.name}", by_search, failing.case if failing else None, more)


def _accused(lab_name: str, path: Path) -> str:
    """What a search holds against a right program."""
    with player_of(open_lab(lab_name), path) as player:
        failing = hunted(player, seconds=_SECONDS.get(lab_name, _OTHERS), seed=2)
    return f"{path.name}: {'; '.join(map(str, failing.operations))}: {failing.sentence}" if failing is not None else ""


def _from_case(lab_name: str, path: Path, player: TracePlayer) -> FailingTrace | None:
    cause = graded(lab_name, path).first_cause
    if cause is None or not cause.cases:
        return None
    lab = open_lab(lab_name)
    case = case_files.load(lab.cases / f"{cause.cases[0]}.toml", lab.grammar, seed=lab.rubric.seed)
    failing = fails(player, case)
    return shrink(player, failing) if failing is not None else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
