"""A driver is read without executing it: what case files may write, what a reproduction needs, what is demanded."""

from __future__ import annotations

from importlib import import_module
from inspect import signature

import pytest

from grader.core.case import JsonValue, Number, Word
from grader.core.rubric import Facet
from grader.labs import open_lab
from grader.labs.python_lab import python_lab
from grader.runtime.python.driver import PythonDriver
from grader.tests.support.toy.lab import ENGINE, HERE

_DRIVER = PythonDriver.of('''
from operator import is_
from typing import Annotated, Any

import engine as submission


class World:
    def __init__(self) -> None:
        self.blocks: list[Any] = []


def _ids(world: World, blocks: Any) -> Any:
    return [_place(world, block) for block in blocks]


def _place(world: World, block: Any) -> Any:
    return next(place for place, other in enumerate(world.blocks) if is_(other, block))


Count = Annotated[int, 0, 9]
Big = Annotated[int, "a whole number"]
Hash = Annotated[str, "a hash", "[a-f]+"]
Block = Annotated[Any, "blocks", 0, 9]
Request = Annotated[Any, "requests"]
Ids = Annotated[Any, _ids]


def begin(world: World, count: Count, big: Big, word: Hash, name: str, caching: bool, most: int) -> None:
    """Part 1."""
    world.blocks = submission.made(count, big, word, name, caching, most)


def take(world: World, blocks: list[Block], request: Request, seq: int | str) -> Annotated[Ids, None, ValueError]:
    return submission.take(blocks, request, seq)


def find(world: World, lengths: Annotated[list[list[int]], "lists"]) -> Annotated[Any, False]:
    """Part 2."""
    return submission.find(lengths).again()


def read(world: World) -> dict[str, Any]:
    return {"blocks": lambda: _ids(world, world.blocks)}
''')


def test_a_signature_says_what_case_files_write() -> None:
    """Numbers have bounds, words patterns, all others are JSON of their type."""
    count, big, word, name, caching, most = _DRIVER.operations["begin"].arguments
    blocks, request, seq = _DRIVER.operations["take"].arguments

    assert (count, most) == (Number("count", 0, 9), Number("most"))
    assert (word, name, request) == (Word("word", "a hash", "[a-f]+"), Word("name"), Word("request"))
    assert isinstance(big, JsonValue)
    assert big.read(str(1 << 40)) == 1 << 40
    assert (caching.read("true"), caching.wanted) == (True, "true or false")
    assert (blocks.read("[1,2]"), blocks.wanted) == ((1, 2), "a list of numbers such as [1,2]")
    assert [seq.read(text) for text in ("red", "7", '""')] == ["red", 7, ""]


@pytest.mark.parametrize(
    ("call", "place", "text"),
    [
        ("begin", 1, '"a"'),
        ("begin", 1, str(1 << 62)),
        ("begin", 4, "1"),
        ("take", 0, "[1,true]"),
        ("take", 0, "1"),
        ("take", 2, "[1]"),
        ("find", 0, "[[1],2]"),
    ],
)
def test_a_value_of_another_type_is_refused(call: str, place: int, text: str) -> None:
    """In the case file, before anything is played."""
    with pytest.raises(ValueError, match=r".*"):
        _DRIVER.operations[call].arguments[place].read(text)


def test_a_reply_says_how_it_is_read_and_how_a_call_refuses() -> None:
    """A function of the driver reads it; the handout's part is that of the operation above, where none is named."""
    described = {name: (call.task, call.refusals) for name, call in _DRIVER.operations.items()}

    assert described == {
        "begin": ("Part 1", ()),
        "take": ("Part 1", ("null", "ValueError")),
        "find": ("Part 2", ("false",)),
    }
    assert _DRIVER.gives == {"take": "_ids"}
    assert _DRIVER.takes["take"] == (("blocks", True), ("requests", False), None)
    assert (_DRIVER.module, _DRIVER.demanded, _DRIVER.reads) == ("engine", ("find", "made", "take"), ("blocks",))
    assert _DRIVER.calling({"again", "_ids"}) == {"find"}


def test_an_excerpt_has_what_is_needed_and_no_more() -> None:
    """Helpers, kinds and imports, however far they are away."""
    text = _DRIVER.excerpt({"take", "read"})

    assert [name for name in ("def take", "def _place", "import is_", "Ids =", "class World") if name not in text] == []
    assert [name for name in ("def find", "def begin", "Hash") if name in text] == []


@pytest.mark.parametrize(
    ("name", "module", "oracle"),
    [
        ("block_pool", "grader.labs.block_pool.oracle", "BlockPoolOracle"),
        ("scheduler", "grader.labs.scheduler.oracle", "SchedulerOracle"),
        ("hybrid", "grader.labs.hybrid.oracle", "HybridOracle"),
        ("offload", "grader.labs.offload.oracle", "Offload"),
    ],
)
def test_an_oracle_has_each_operation(name: str, module: str, oracle: str) -> None:
    """With as many arguments: the driver spells both once more."""
    engine = getattr(import_module(module), oracle)

    for call, written in open_lab(name).grammar.operations.items():
        signature(getattr(engine, call)).bind(engine, *written.arguments)


def test_a_facet_of_what_nobody_reads_is_refused() -> None:
    """It would be wrong in every program."""
    with pytest.raises(ValueError, match="the driver does not read weight"):
        python_lab(HERE, "A shelf", ENGINE, (Facet("weight"),), cases=HERE / "cases")
