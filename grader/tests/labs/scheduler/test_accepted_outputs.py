"""What accepted schedulers generate does not depend on pool, budget, threshold, policy or gate."""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import pytest

from grader.labs import open_lab
from grader.pytest_plugin.items import accepted_samples

_GIVEN = "kv_cache"
_MOST_STEPS = 2_000


def executed(name: str, path: Path) -> ModuleType:
    """A module made of a file, under a name by which others can import it."""
    module = ModuleType(name)
    sys.modules[name] = module
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module that submissions may import."""
    for name in (_GIVEN, "scheduler"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    return executed(_GIVEN, open_lab("scheduler").starter[f"{_GIVEN}.py"])


def outputs(
    module: ModuleType, given: ModuleType, prompts: dict[str, list[int]], size: tuple[int, bool], *arguments: Any
) -> dict[str, list[int]]:
    """What each request generates, run to its end; the last numbers of its tokens decide what comes next."""
    num_blocks, caching = size
    scheduler = module.Scheduler(given.KVCacheManager(num_blocks, 2, caching), 3, *arguments)
    requests = {
        name: given.Request(name, prompt, 5, place % 2, place) for place, (name, prompt) in enumerate(prompts.items())
    }
    for request in requests.values():
        scheduler.add_request(request)
    for _ in range(_MOST_STEPS):
        scheduled = dict(scheduler.schedule()["scheduled"])
        samples = {name: sum(requests[name].all_token_ids[-3:]) % 7 for name in scheduled}
        scheduler.update(samples)
        if all(request.status == "FINISHED" for request in requests.values()):
            break
    return {name: request.all_token_ids[request.num_prompt_tokens :] for name, request in requests.items()}


@pytest.mark.parametrize("sample", accepted_samples("scheduler"), ids=lambda path: path.name)
def test_outputs_do_not_depend_on_the_schedule(sample: Path, given: ModuleType) -> None:
    """Twenty sets of requests under twelve settings each."""
    module = executed("scheduler", sample / "scheduler.py")
    settings = list(
        product(((8, True), (8, False), (40, True)), (1, 3, 64), (0, 2), ("fcfs", "priority"), (False, True))
    )
    for seed in range(20):
        random = Random(seed)
        prompts = {name: [random.randrange(3) for _ in range(random.randint(1, 8))] for name in "abcd"}
        alone = outputs(module, given, prompts, (200, False), 500)
        assert all(len(tokens) == 5 for tokens in alone.values())
        for size, *arguments in random.sample(settings, 12):
            assert outputs(module, given, prompts, size, *arguments) == alone, (seed, size, arguments)
