"""The rules of a state machine over two engines: every call, a NULL engine and the pokes."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from grader.labs.paged_kv.states import State
from grader.tests.labs.paged_kv.played import Played
from reference.operation import Operation, Reply
from reference.oracle import CannotPoke
from reference.paged_kv.constants import BLOCK_SIZE, KV_PER_BLOCK, L1_PT_SIZE, MAX_LOGICAL_BLOCKS
from reference.tests.paged_kv.played import operation

IDS = st.integers(0, 4)
TURN = st.integers(0, 1)
POOLS = st.integers(BLOCK_SIZE, BLOCK_SIZE * 9)
LONGEST = KV_PER_BLOCK * MAX_LOGICAL_BLOCKS
_EDGES = (-1, 0, KV_PER_BLOCK, KV_PER_BLOCK + 1, 2 * KV_PER_BLOCK, LONGEST, LONGEST + 1)
LENGTHS = st.one_of(st.integers(1, 4 * KV_PER_BLOCK + 6), st.sampled_from(_EDGES))
INTS = st.integers(-(2**31), 2**31 - 1)
CALLS = ["create_sequence 1 5", "free_sequence 1", "fork_sequence 1 2", "append_kv 1 5", "llm_destroy"]


class Machine(RuleBasedStateMachine):
    """Every rule is one operation; kept are the records around it and what no record holds."""

    def __init__(self) -> None:
        super().__init__()
        self.played = Played(None, engines=2)
        self.before = self.after = self.played.record()
        self.was = self.now = self.played.state
        self.operation: Operation | None = None
        self.reply = Reply(text="")
        self.order: dict[int, list[int]] = {1: [], 2: []}
        self.poked: set[tuple[int, int]] = set()
        self.written: dict[int, set[int]] = {1: set(), 2: set()}

    def do(self, line: str) -> None:
        """Apply one line, remember what was and what is, and keep the books that a record does not hold."""
        self.before, self.was = self.after, self.now
        try:
            self.reply = self.played.do(line)
        except CannotPoke:
            return
        self.operation = operation(line)
        self.after, self.now = self.played.record(), self.played.state
        if not self.reply.refused and self.operation.target is not None:
            self.book(self.operation.target, self.operation.name, self.operation.arguments)

    def book(self, target: int, name: str, arguments: tuple[object, ...]) -> None:
        """The order of creation, which sequences were poked, and which words changed."""
        ids = [argument for argument in arguments if isinstance(argument, int)]
        if name in ("llm_init", "llm_destroy"):
            self.order[target] = []
            self.poked = {key for key in self.poked if key[0] != target}
            self.written[target] = set()
        elif name in ("create_sequence", "fork_sequence"):
            new = ids[0] if name == "create_sequence" else ids[1]
            self.order[target].append(new)
            if name == "fork_sequence" and (target, ids[0]) in self.poked:
                self.poked.add((target, new))
        elif name == "free_sequence":
            self.order[target].remove(ids[0])
            self.poked.discard((target, ids[0]))
        elif name != "append_kv":
            self.poked.add((target, ids[0]))
        if name == "append_kv":
            pair = zip(*(state[str(target)]["region"] for state in (self.was, self.now)), strict=True)
            self.written[target] |= {place for place, (old, new) in enumerate(pair) if old != new}

    def living(self) -> list[tuple[int, State, State]]:
        """The engines that live, with their numbers and what is known of their pools too."""
        return [(int(number), slot, slot["engine"]) for number, slot in self.now.items() if slot["engine"] is not None]

    def pick(self, turn: int) -> int:
        """The number of a living engine."""
        numbers = sorted(number for number, _, _ in self.living())
        return numbers[turn % len(numbers)]

    def can_call(self) -> bool:
        """Whether any engine lives."""
        return bool(self.living())

    @initialize(one=POOLS, two=POOLS)
    def two_engines(self, one: int, two: int) -> None:
        """Most runs are about engines that are there."""
        self.do(f"llm_init {one}")
        self.do(f"@2 llm_init {two}")

    @precondition(lambda self: len(self.living()) < 2)
    @rule(pool=st.one_of(POOLS, st.integers(0, BLOCK_SIZE - 1)), null=st.sampled_from(["", "", "NULL "]))
    def llm_init(self, pool: int, null: str) -> None:
        """A new engine where none lives."""
        number = 2 if any(number == 1 for number, _, _ in self.living()) else 1
        self.do(f"@{number} llm_init {null}{pool}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS, length=LENGTHS)
    def create_sequence(self, turn: int, seq_id: int, length: int) -> None:
        """Task 2."""
        self.do(f"@{self.pick(turn)} create_sequence {seq_id} {length}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS)
    def free_sequence(self, turn: int, seq_id: int) -> None:
        """Task 2."""
        self.do(f"@{self.pick(turn)} free_sequence {seq_id}")

    @precondition(can_call)
    @rule(turn=TURN, parent=IDS, child=IDS)
    def fork_sequence(self, turn: int, parent: int, child: int) -> None:
        """Task 3."""
        self.do(f"@{self.pick(turn)} fork_sequence {parent} {child}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS, kv_data=INTS)
    def append_kv(self, turn: int, seq_id: int, kv_data: int) -> None:
        """Task 4."""
        self.do(f"@{self.pick(turn)} append_kv {seq_id} {kv_data}")

    @precondition(can_call)
    @rule(turn=TURN, sure=st.sampled_from([False, False, True]))
    def llm_destroy(self, turn: int, *, sure: bool) -> None:
        """Task 5, now and then."""
        if sure:
            self.do(f"@{self.pick(turn)} llm_destroy")

    @rule(line=st.sampled_from(CALLS))
    def null_engine(self, line: str) -> None:
        """Constraint 1."""
        self.do(f"@NULL {line}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS, source=st.integers(0, 2), slot=st.integers(0, L1_PT_SIZE - 1))
    def move_l2(self, turn: int, seq_id: int, source: int, slot: int) -> None:
        """A poke that makes holes in L1 tables."""
        self.do(f"@{self.pick(turn)} move_l2 {seq_id} {source} {slot}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS, logical=st.integers(0, 4))
    def unmap(self, turn: int, seq_id: int, logical: int) -> None:
        """A poke that makes holes in L2 tables."""
        self.do(f"@{self.pick(turn)} unmap {seq_id} {logical}")

    @precondition(can_call)
    @rule(turn=TURN, seq_id=IDS, kv_count=st.one_of(st.integers(0, 5 * KV_PER_BLOCK), st.integers(0, LONGEST)))
    def set_kv_count(self, turn: int, seq_id: int, kv_count: int) -> None:
        """A poke that moves the place of the next record."""
        self.do(f"@{self.pick(turn)} set_kv_count {seq_id} {kv_count}")
