"""Which tests catch a defect: some hundred are planted in the grader, and each meets the tests that execute its line.

    python -m grader.tests.trials.kill_table FOLDER             two clones in FOLDER; 250 defects, an hour or more
    python -m grader.tests.trials.kill_table FOLDER --seed 2    other defects
    python -m grader.tests.trials.kill_table FOLDER --every     all cheap tests, also behind the one that catches it
    python -m grader.tests.trials.kill_table FOLDER --few FILE  first the tests that FILE names: what others alone catch

First all tests run under coverage, which tells which of them execute a line, and what each costs. Then each defect is
tried with the cheapest tests first, until one catches it. What was done is kept in FOLDER, and another start goes on
behind it. A start that comes to its end writes the table: kill_table.csv, beside this file, names the cheapest test
that catches each defect. The exit code is 1 where a worker failed, or the tests of --few catch fewer than 97 of 100
defects that any test catches.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import coverage
import pytest

from grader.search.mutants import Mutant, mutants
from grader.tests.support.command import ROOT
from grader.tests.support.planted import CONTEXT, Defect, Measuring, Planting, Tried, costs, functions_changed

ROOMS = ("judge", "runtime", "assignment", "result", "report", "classroom", "search", "system", "labs")
_WORKERS = os.cpu_count() or 1
_COVERAGE = """[run]
source = grader
omit = */tests/*
parallel = true
patch = subprocess
context = ${%s-}
data_file = %s/lines/coverage
"""
_CHEAP = 1.0
"""With --every, only tests that take at most so many seconds are tried."""
_MOST, _MOST_CHEAP = 60.0, 8.0
"""How many seconds the tests of one defect may take, and those that are cheap."""
_ENOUGH = 0.97


def main() -> int:
    """Measure, plant, and write the table."""
    parser = argparse.ArgumentParser(
        prog="kill_table", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder for two clones and what was measured")
    parser.add_argument("--defects", type=int, default=250, metavar="N", help="how many are planted (250)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which of all possible ones (1)")
    parser.add_argument("--every", action="store_true", help="try all cheap tests with each defect")
    parser.add_argument(
        "--few", type=Path, metavar="FILE", help="a file with the names of tests, which are tried first"
    )
    parser.add_argument("--worker", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.worker is not None:
        return _work(folder, options)
    houses = [_house(folder / f"house{number}") for number in range(_WORKERS)]
    if not (folder / "lines" / "coverage").exists():
        _measure(folder, houses[0])
    results = _results(folder, options)
    shutil.rmtree(_claims(results), ignore_errors=True)
    workers = [
        subprocess.Popen(
            [house / ".venv/bin/python", "-I", "-m", __spec__.name, *sys.argv[1:], "--worker", str(number)],
            cwd=house,
            stdout=(folder / f"worker{number}").open("w"),
            stderr=subprocess.STDOUT,
        )
        for number, house in enumerate(houses)
    ]
    codes = [worker.wait() for worker in workers]
    tried = _tried(results)
    few = _few(options)
    caught = [one for one in tried if one.caught_by]
    by_few = [one for one in caught if not few.isdisjoint(one.caught_by)] if few else caught
    if tried and not (options.every or few or any(codes)):
        _write_table(tried)
    sys.stdout.write("".join(_line(one) for one in tried if one not in by_few))
    sys.stdout.write(f"{len(caught)} of {len(tried)} defects are caught")
    sys.stdout.write(f", {len(by_few)} of them by the few tests\n" if few else "\n")
    return 1 if any(codes) or len(by_few) < _ENOUGH * len(caught) else 0


def _line(tried: Tried) -> str:
    """Return a line on a defect that the tests in question do not catch."""
    how = f"only {tried.caught_by[0]}" if tried.caught_by else f"{tried.tests} tests"
    of_more = "" if tried.complete else ", of more"
    return f"{tried.defect.file}:{tried.defect.line} {tried.defect.change}: {how}{of_more}\n"


def _house(house: Path) -> Path:
    """Return a clone that is set up, without what an interrupted start may have left planted."""
    if not (house / ".venv").exists():
        subprocess.run(["git", "clone", "--quiet", ROOT, house], check=True)
        subprocess.run([house / "scripts" / "setup", "--dev"], check=True)
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=house, check=True)
    return house


def _measure(folder: Path, house: Path) -> None:
    """Run all tests and keep the lines that each executes, and its seconds."""
    shutil.rmtree(folder / "lines", ignore_errors=True)
    (folder / "lines").mkdir()
    settings = folder / "coverage.ini"
    settings.write_text(_COVERAGE % (CONTEXT, folder), encoding="utf-8")
    subprocess.run(
        [
            *(house / ".venv/bin/python", "-m", "coverage", "run", f"--rcfile={settings}"),
            *("-m", "pytest", "-n", str(_WORKERS), "--dist", "worksteal", "-q", "-p", __spec__.name),
        ],
        cwd=house,
        env=os.environ | {"KILL_TABLE_COSTS": str(folder / "lines" / "costs")},
        check=False,
    )
    combined = coverage.Coverage(config_file=str(settings))
    combined.combine([str(folder / "lines")])
    combined.save()


def pytest_configure(config: pytest.Config) -> None:
    """Measure each test, where this module is loaded as a plugin."""
    if file := os.environ.get("KILL_TABLE_COSTS"):
        config.pluginmanager.register(Measuring(Path(file)))


def _work(folder: Path, options: argparse.Namespace) -> int:
    """Try the defects that no other worker has begun."""
    results = _results(folder, options)
    _claims(results).mkdir(exist_ok=True)
    done = {one.defect for one in _tried(results)}
    seconds = costs(folder / "lines" / "costs")
    few, most = _few(options), _CHEAP if options.every else float("inf")
    allowed = {test for test, took in seconds.items() if took <= most}
    order = {test: (test not in few, took, test) for test, took in seconds.items()}
    tests = {
        name: {line: sorted(names & allowed, key=order.__getitem__) for line, names in lines.items()}
        for name, lines in _lines(folder).items()
    }
    chosen = _defects(tests, options.defects, random.Random(options.seed))
    planting = Planting(
        root=ROOT,
        defects=[(defect, text) for defect, text in chosen if defect not in done],
        tests={defect: tests[defect.file][defect.line] for defect, _ in chosen},
        seconds=seconds,
        file=results,
        claims=_claims(results),
        every=options.every,
        most_seconds=_MOST_CHEAP if options.every else _MOST,
    )
    words = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120")
    warned = ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # this module has imported the grader
    return int(pytest.main([*words, *warned], plugins=[planting]))


def _results(folder: Path, options: argparse.Namespace) -> Path:
    kind = "every" if options.every else options.few.stem if options.few else "first"
    return folder / f"{kind}-{options.seed}.jsonl"


def _few(options: argparse.Namespace) -> set[str]:
    return set(options.few.read_text(encoding="utf-8").split()) if options.few else set()


def _claims(results: Path) -> Path:
    return results.with_suffix(".claims")


def _tried(results: Path) -> list[Tried]:
    lines = results.read_text(encoding="utf-8").splitlines() if results.exists() else []
    fields = map(json.loads, lines)
    return [Tried(**one | {"defect": Defect(**one["defect"]), "caught_by": tuple(one["caught_by"])}) for one in fields]


def _lines(folder: Path) -> dict[str, dict[int, set[str]]]:
    """Return by file of a room the lines that tests execute, each with these tests."""
    data = coverage.CoverageData(str(folder / "lines" / "coverage"))
    data.read()
    lines: dict[str, dict[int, set[str]]] = defaultdict(dict)
    for path in data.measured_files():
        _, inside, file = path.rpartition("/grader/")
        if inside and file.startswith(tuple(f"{room}/" for room in ROOMS)):
            for line, tests in data.contexts_by_lineno(path).items():
                lines[f"grader/{file}"].setdefault(line, set()).update(filter(None, tests))
    return lines


def _defects(tests: dict[str, dict[int, list[str]]], count: int, chance: random.Random) -> list[tuple[Defect, str]]:
    """Choose defects in lines that a test executes, in functions: by turns in each room."""
    places: dict[str, list[tuple[str, int]]] = {room: [] for room in ROOMS}
    for file, lines in sorted(tests.items()):
        places[Path(file).parts[1]] += [(file, line) for line in sorted(lines) if lines[line]]
    for room in places.values():
        chance.shuffle(room)
    chosen: list[tuple[Defect, str]] = []
    while len(chosen) < count and any(places.values()):
        for room in filter(None, places.values()):
            found = next(iter(_at(*room.pop(), chance)), None)
            if found is not None:
                chosen.append(found)
    return chosen[:count]


def _at(file: str, line: int, chance: random.Random) -> Iterator[tuple[Defect, str]]:
    """Yield the defects of a line, in an order by chance."""
    path = ROOT / file
    original = path.read_text(encoding="utf-8")
    there = [mutant for mutant in _mutants(file) if mutant.line == line]
    chance.shuffle(there)
    for mutant in there:
        if functions_changed(path, original, mutant.content.decode()):
            defect = Defect(file=file, line=line, column=mutant.column, change=mutant.change)
            yield defect, mutant.content.decode()


@cache
def _mutants(file: str) -> tuple[Mutant, ...]:
    return tuple(mutants((ROOT / file).read_bytes(), "python"))


def _write_table(tried: Sequence[Tried]) -> None:
    """Write the table, and say which tests are the cheapest that catch something."""
    first = Counter(one.caught_by[0] for one in tried if one.caught_by)
    with Path(__file__).with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["file", "line", "change", "caught by"])
        for one in sorted(tried, key=lambda one: (one.defect.file, one.defect.line, one.defect.change)):
            rows.writerow([one.defect.file, one.defect.line, one.defect.change, *one.caught_by[:1]])
    sys.stdout.write("".join(f"{count:4} {test}\n" for test, count in first.most_common()))


if __name__ == "__main__":
    sys.exit(main())
