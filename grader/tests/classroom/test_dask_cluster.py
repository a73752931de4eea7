"""A class graded by the workers of a real Dask scheduler: nothing is lost or doubled, whoever is killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from distributed import LocalCluster

from grader.classroom import dask_cluster as clusters
from grader.classroom.dask_cluster import cluster
from grader.classroom.workers import KILLED, MOST_SECONDS_TO_END, grade
from grader.cli.app import Parser
from grader.cli.batch import BatchOptions, Where
from grader.core.errors import NoWorkers, OtherGrader, ToolMissing, Unprotected, UsageError
from grader.tests.support.classes import children, finished, made_counters, records, start, until
from grader.tests.support.pretended import FEW_IN_C, deadly, murderous, task, user
from grader.tests.support.same_result import same_result

_COUNT = 10
_OPTIONS = ("--lab", "counter", "--require-sandbox", "limits")


@pytest.fixture(scope="module")
def there() -> Iterator[LocalCluster]:
    """A scheduler, and two workers as nannies start them."""
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as made:
        yield made


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A small class of counters, in a place into which another user may look."""
    made = Path(tempfile.mkdtemp(prefix="cluster-"))
    made.chmod(0o755)
    yield made_counters(made / "class", _COUNT)
    shutil.rmtree(made)


def address(there: LocalCluster) -> str:
    """As one writes it behind dask://."""
    return str(there.scheduler_address).removeprefix("tcp://")


def held(there: LocalCluster) -> list[str]:
    """The tasks of which the scheduler knows."""
    assert there.scheduler is not None
    return [str(key) for key in there.scheduler.tasks]


def started_at(pid: int) -> str:
    """When a process was started; numbers are used again, and nothing for one that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        state, *rest = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return "" if state == "Z" else rest[18]
    return ""


def alive(started: Mapping[int, str]) -> list[int]:
    """Which of these processes, by when they were started, are still there."""
    return [pid for pid, then in started.items() if then and started_at(pid) == then]


def begun(folder: Path, store: Path, there: LocalCluster, count: int) -> subprocess.Popen[bytes]:
    """A batch on these workers that has so many records."""
    process = start(folder, store, *_OPTIONS, "--executor", f"dask://{address(there)}")
    while finished(store) < count and process.poll() is None:
        time.sleep(0.01)
    return process


def test_an_interrupted_batch_that_also_loses_a_worker_ends_with_the_same_store(
    there: LocalCluster, folder: Path
) -> None:
    """After Ctrl-C the scheduler has no task of ours. Then, going on, SIGKILL for a worker: it is as undisturbed."""
    store, undisturbed = folder.parent / "disturbed.sqlite", folder.parent / "undisturbed.sqlite"
    process = begun(folder, store, there, 1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    kept = finished(store)
    until(lambda: not held(there))

    assert process.returncode == 130, said.decode()
    assert "the same command continues" in said.decode()
    assert "Traceback" not in said.decode()
    assert 1 <= kept < _COUNT
    assert held(there) == []

    process = begun(folder, store, there, kept + 1)
    victim = there.workers[0].pid
    graders = {pid: started_at(pid) for pid in children(victim)}
    os.kill(victim, signal.SIGKILL)
    killed_at = finished(store)
    _, said = process.communicate(timeout=120)
    until(lambda: not alive(graders), 2 * MOST_SECONDS_TO_END)

    assert process.returncode == 1, said.decode()
    assert f"{kept} of them graded already" in said.decode()
    assert kept < killed_at < _COUNT
    assert alive(graders) == []
    assert any(graders.values())

    start(folder, undisturbed, *_OPTIONS, "--jobs", "1").communicate(timeout=120)
    expected, made = records(undisturbed), records(store)
    assert made.keys() == expected.keys()
    assert [name for name in made if not same_result(made[name], expected[name])] == []
    assert [name for name in made if made[name].protection != expected[name].protection] == []
    assert finished(store) == finished(undisturbed) == _COUNT


def test_no_two_gradings_of_a_machine_have_one_user(there: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those of two workers nor those of two threads of one; processes that have nothing to do end."""
    before = children(os.getpid())
    with cluster(address(there), print) as executor, ThreadPoolExecutor(2) as threads:
        futures = [executor.submit(user, task(f"{number}")) for number in range(2)]
        futures += [threads.submit(clusters._grade_there, user, task()) for _ in range(2)]
        users = [future.result(timeout=60).failure for future in futures]
        monkeypatch.setattr(clusters, "_IDLE_SECONDS", 0.0)
        again = [one.failure for one in threads.map(partial(clusters._grade_there, user), (task(), task()))]
    until(lambda: children(os.getpid()) <= before)

    assert len(set(users)) == 4
    assert sorted(again) == sorted(users[2:])
    assert children(os.getpid()) <= before


def test_a_submission_that_kills_its_process_stops_no_other(there: LocalCluster) -> None:
    """It is tried twice, then it has no score and a reason."""
    with cluster(address(there), print) as executor:
        futures = [executor.submit(deadly, task(text)) for text in ("deadly", "harmless")]
        results = [future.result(timeout=60) for future in futures]

    assert [one.failure for one in results] == [KILLED, ""]


def test_a_submission_whose_workers_die_stops_no_other(there: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """When Dask gives it up it has no score and a reason."""
    monkeypatch.setattr(there.scheduler, "allowed_failures", 0)
    with cluster(address(there), print) as executor:
        died = executor.submit(murderous, task("murderous")).result(timeout=60)
        harmless = executor.submit(deadly, task("harmless")).result(timeout=60)

    assert (died.failure, harmless.failure) == (KILLED, "")


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"fingerprint": "x", "made_of": {"gcc": "gcc 99"}}, OtherGrader, "gcc 'gcc .*', not 'gcc 99'"),
        ({"settings": replace(FEW_IN_C, case="no such case")}, OtherGrader, "no case matches"),
        ({"level": "bubblewrap"}, Unprotected, "nothing was run"),
    ],
    ids=["tools", "cases", "protection"],
)
def test_a_worker_refuses_what_it_would_do_otherwise(
    there: LocalCluster, changed: dict[str, object], error: type[Exception], words: str
) -> None:
    """The whole batch hears of it, with the name of the worker: nobody gets a record that was not asked for."""
    if error is Unprotected and shutil.which("bwrap"):
        pytest.skip("this machine may protect itself")
    with cluster(address(there), print) as executor, pytest.raises(error, match=f"(?s)worker tcp://.* on .*{words}"):
        executor.submit(grade, task(**changed)).result(timeout=60)  # type: ignore[arg-type]  # its fields


def test_without_workers_it_waits_for_some_and_says_so() -> None:
    """Not for ever."""
    told: list[str] = []
    with (
        LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50) as empty,
        cluster(address(empty), told.append, patience=0.5) as executor,
        pytest.raises(NoWorkers, match=r"no worker came .* the same command continues"),
    ):
        executor.submit(grade, task()).result(timeout=30)

    assert len(told) == 1
    assert f"dask worker {address(empty)}" in told[0]


def test_a_scheduler_that_goes_is_told() -> None:
    """Dask itself only cancels."""
    with (
        closing(LocalCluster(n_workers=0, dashboard_address=":0", silence_logs=50)) as left,
        cluster(address(left), print) as executor,
    ):
        future = executor.submit(grade, task())
        left.close()
        with pytest.raises(NoWorkers, match="scheduler is gone"):
            future.result(timeout=30)


def test_a_scheduler_that_is_not_there_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to write."""
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 0.2)
    with (
        pytest.raises(NoWorkers, match=r"no Dask scheduler answers at 127\.0\.0\.1:1(?s:.*)dask scheduler"),
        cluster("127.0.0.1:1", print),
    ):
        pass


def read(word: str) -> object:
    """What `grade batch` understands by it."""
    return Parser("grade batch", "", BatchOptions).read(["folder", "--executor", word]).where.executor


@pytest.mark.parametrize("word", ["dask:/x", "dask://host", "dask://host:0", "dask://host:65536", "tcp://host:1", ""])
def test_a_wrong_address_is_a_usage_error(word: str) -> None:
    """It says what to write."""
    with pytest.raises(UsageError, match=re.escape("write dask://HOST:PORT")):
        read(word)
    assert read("dask://[::1]:8786") == "[::1]:8786"


def test_without_the_package_the_command_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.delitem(sys.modules, "grader.classroom.dask_cluster")
    monkeypatch.setitem(sys.modules, "distributed", None)

    with pytest.raises(ToolMissing, match="scripts/setup --dask"):
        Where(jobs=1, executor="127.0.0.1:8786").workers(3)
