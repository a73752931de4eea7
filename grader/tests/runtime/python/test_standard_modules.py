"""What a submission may call of the standard library works, also what imports further modules when it is called."""

from __future__ import annotations

import json

import pytest

from grader.runtime.python import process
from grader.runtime.python.table import CallTable
from grader.system import sandbox

_TABLE = CallTable(
    setup="from shelf import use",
    calls={"use": "use()"},
    parameters={"use": ()},
    reads={},
)


@pytest.mark.parametrize(
    ("module", "expression"),
    [
        ("collections", "collections.Counter('aab').most_common(1)"),
        ("collections", "collections.namedtuple('Slot', 'block offset')(1, 2)"),
        ("datetime", "datetime.datetime.strptime('2026', '%Y').year"),
        ("functools", "functools.singledispatch(len)([])"),
        ("functools", "functools.singledispatch(len).register(int, abs)(-1)"),
        ("time", "time.strptime('2026', '%Y').tm_year"),
        ("typing", "typing.get_type_hints(typing.NamedTuple('Slot', [('block', int)]))['block'] is int"),
        ("typing", "isinstance([], typing.runtime_checkable(type('P', (typing.Protocol,), {'pop': len})))"),
        ("warnings", "warnings.filterwarnings('ignore', 'deprecated')"),
        ("warnings", "warnings.warn('late')"),
        ("dataclasses", "dataclasses.asdict(dataclasses.make_dataclass('Slot', ['block'])(1))"),
        ("enum", "enum.IntFlag('Kind', 'FULL WINDOW').FULL.value"),
        ("random", "random.Random(1).sample(range(9), 2)"),
        ("traceback", "traceback.format_stack() and 0"),
    ],
)
def test_a_function_works_when_only_its_module_is_imported(module: str, expression: str) -> None:
    """No other line of the submission imports what it needs."""
    source = f"import {module}\n\n\ndef use():\n    return {expression}\n"
    with sandbox.workspace(tools=(process.interpreter(),)) as work:
        plan = [{"case": 0, "operations": [["use", []]]}]
        done = process.run(work, source.encode(), _TABLE, plan, given={}, modules=(module,), total=5.0)
    sent = [(frame.kind, json.loads(frame.body)) for frame in process.frames(done.channels[0]) if frame.kind in "SXR"]

    assert [kind for kind, _ in sent] == ["S"], sent
    assert "returned" in sent[0][1]["reply"]
