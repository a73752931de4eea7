"""Explain differences at another sequence, engine or slot than the call was about."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from grader.core.judgement import STILL_EMPTY, UNFILLED, Difference
from grader.labs.paged_kv.effects import Effects, entries_of, ids_of
from grader.labs.paged_kv.states import State, entry_name
from reference.operation import Operation
from reference.paged_kv.constants import L2_PT_SIZE
from reference.paged_kv.sequence import UNMAPPED

_LOGICAL = re.compile(r"block_table\[(\d+)\]\[(\d+)\]$")


def with_notes(
    differences: Sequence[Difference], operation: Operation, effects: Effects, *, expected: State, actual: State
) -> list[Difference]:
    """Return the differences, with a note and a tag for those in a wrong sequence, engine or slot."""
    number = operation.target or 1
    want, have = (state.get(str(number), {}).get("engine") for state in (expected, actual))
    noted = [_engine(difference, number) for difference in differences]
    noted = list(_stored_elsewhere(noted))
    if effects.copied is not None:
        noted = [_of_copy(difference, effects.copied) for difference in noted]
    ids = ids_of(operation)
    if want is not None and have is not None and ids:
        noted = list(_other_sequence(noted, ids, want, have))
        noted = list(_misplaced(noted, want, have))
        noted = list(_lost_entries(noted, effects, have))
        if operation.name == "free_sequence":
            noted = _other_freed(noted, ids[0], want, have)
        if operation.name == "fork_sequence":
            noted = _other_parent(noted, ids, want, have)
    return noted


def _engine(difference: Difference, number: int) -> Difference:
    if difference.facet != "isolation":
        return difference
    name, other, _ = difference.field.partition(":")
    changed = name if other and name.startswith("engine @") else "engine @1"
    return replace(difference, note=f"The call went to engine @{number}, but {changed} changed.")


def _of_copy(difference: Difference, copied: tuple[int, int]) -> Difference:
    """Add a tag that says to which block of a copy-on-write a count belongs."""
    if difference.facet != "ref_count":
        return difference
    role = {f"ref_count[{copied[0]}]": "old-block", f"ref_count[{copied[1]}]": "new-block"}
    place = difference.field.rpartition(" ")[2]
    return replace(difference, tags=difference.tags | {role.get(place, "other-block")})


def _stored_elsewhere(differences: Sequence[Difference]) -> Iterator[Difference]:
    """Add a note that says where kv_data went if it is not at its place."""
    places = [
        difference.field for difference in differences if "data" in difference.tags and "target" not in difference.tags
    ]
    others = [
        difference.field
        for difference in differences
        if difference.facet == "written" and "target" not in difference.tags
    ]
    for difference in differences:
        if "target" not in difference.tags:
            yield difference
        elif places:
            note = f"kv_data went to {places[0]}; it belongs in {difference.field}."
            yield replace(difference, note=note, tags=difference.tags | {"elsewhere"}, place=places[0])
        else:
            changed = f"; {' and '.join(others[:2])} changed instead" if others else ", where nothing is stored"
            yield replace(
                difference, note=f"kv_data belongs in {difference.field}{changed}.", tags=difference.tags | {"nowhere"}
            )


def _other_sequence(
    differences: Sequence[Difference], ids: Sequence[int], want: State, have: State
) -> Iterator[Difference]:
    there, last = have["sequences"], str(ids[-1])
    changed = {
        f"sequence {seq_id}:": int(seq_id)
        for seq_id, sequence in want["sequences"].items()
        if seq_id != last and there.get(seq_id) not in (None, sequence)
    }
    for difference in differences:
        other = next((seq_id for name, seq_id in changed.items() if name in difference.field), None)
        if other is None:
            yield difference
        elif len(ids) > 1 and other == ids[0]:
            note = f"Sequence {other} is the parent; a fork changes nothing in its parent's tables and fields."
            yield _of_another(difference, note)
        elif last in there and there[last] == want["sequences"].get(last):
            note = f"Sequence {ids[-1]} is as it must be, but sequence {other} changed too."
            yield replace(difference, note=note, tags=difference.tags | {"changed-too"})
        else:
            yield _of_another(difference, f"Sequence {ids[-1]} was asked for, but sequence {other} changed.")


def _misplaced(differences: Sequence[Difference], want: State, have: State) -> Iterator[Difference]:
    """Mark misplaced blocks, surplus blocks, and empty entries while only the pool's first or last block is free."""
    if all(difference.facet != "tables" for difference in differences):
        yield from differences
        return
    wanted, mapped = _places(want), _places(have)
    counts = have["ref_count"] if isinstance(have["ref_count"], list) else []
    free = [block for block, count in enumerate(counts) if count == 0]
    ends = {0, len(counts) - 1}
    for difference in differences:
        if difference.facet != "tables" or "[" not in difference.field:
            yield difference
            continue
        name = difference.field.rpartition(": ")[0].rpartition(": ")[2]
        here, there = _block(difference.actual), _block(difference.expected)
        belongs = _only_in(wanted.get(here, ()), mapped.get(here, ()), name)
        stands = _only_in(mapped.get(there, ()), wanted.get(there, ()), name)
        if stands is not None:
            note = f"In {name} block {there} was put into {_entry(stands)}; it belongs in {_entry(difference.field)}."
            yield replace(difference, note=note, tags=difference.tags | {"misplaced"})
        elif UNFILLED in difference.tags and here >= 0 and belongs is not None:
            note = f"In {name} block {here} was put into {_entry(difference.field)}; it belongs in {_entry(belongs)}."
            yield replace(difference, note=note, tags=difference.tags | {"misplaced"})
        elif UNFILLED in difference.tags and 0 <= here < len(counts) and counts[here] > want["ref_count"][here]:
            yield replace(difference, tags=difference.tags - {UNFILLED} | {"one-too-many"})
        elif "mapping" in difference.tags and here == UNMAPPED and there in free and ends.issuperset(free):
            end = "first" if there == 0 else "last"
            yield replace(
                difference, note=f"Block {there} is the {end} of the pool.", tags=difference.tags | {"free-at-the-ends"}
            )
        else:
            yield difference


def _lost_entries(differences: Sequence[Difference], effects: Effects, have: State) -> Iterator[Difference]:
    """Mark empty entries whose block the program lost. Do not mark entries that it only forgot to fill.

    Entries are mapped in turn, so an empty entry before a mapped entry of its table lost its block. An append fills one
    entry, so every other empty entry lost its block.
    """
    mapped = have["sequences"].get(str(effects.seq_id))
    for difference in differences:
        is_own = difference.facet == "tables" and f"sequence {effects.seq_id}: " in difference.field
        place = _LOGICAL.search(difference.field) if is_own else None
        if place is None or mapped is None or not {"mapping", STILL_EMPTY} <= difference.tags:
            yield difference
            continue
        l1, l2 = map(int, place.groups())
        later = [block for table in entries_of(mapped)[l1 : l1 + 1] for block in table[l2 + 1 :] if block >= 0]
        is_next = (l1, l2) == divmod(effects.logical, L2_PT_SIZE)
        appends = len(effects.taken) == 1 and effects.stored is not None
        lost = not is_next if appends else later
        yield replace(difference, tags=difference.tags | {"lost"}) if lost else difference


def _only_in(places: Collection[str], others: Collection[str], sequence: str) -> str | None:
    """Return the first of the places in a sequence that is not among the others."""
    return next((place for place in places if place.startswith(f"{sequence}: ") and place not in others), None)


def _entry(place: str) -> str:
    """Return the name of an entry without its sequence."""
    return place.rpartition(": ")[2]


def _places(engine: State) -> dict[int, list[str]]:
    """Return for each block the entries that map it."""
    places: dict[int, list[str]] = {}
    for seq_id, sequence in engine["sequences"].items():
        for l1, table in enumerate(entries_of(sequence)):
            for l2, block in enumerate(table):
                if block >= 0:
                    places.setdefault(block, []).append(entry_name(seq_id, l1, l2))
    return places


def _block(text: str) -> int:
    """Return the block in the text of a difference, -2 if there is none."""
    try:
        return int(text.removeprefix("block "))
    except ValueError:
        return -2


def _other_freed(differences: Sequence[Difference], asked: int, want: State, have: State) -> list[Difference]:
    """Mark differences if another sequence than the freed one left the list."""
    left = have["active_seqs"]
    whole = "next" not in have  # else what comes after the break is unknown
    gone = ", ".join(str(seq_id) for seq_id in want["active_seqs"] if whole and seq_id not in left)
    still = ", which is still in the list" if asked in left else ""
    note = f"Sequence {asked} was to be freed{still}; sequence {gone} is gone from the list."
    return [
        _of_another(difference, note)
        if gone and difference.facet in ("list", "failing") and "next" in difference.field
        else difference
        for difference in differences
    ]


def _other_parent(differences: Sequence[Difference], ids: Sequence[int], want: State, have: State) -> list[Difference]:
    """Mark differences if the child has the blocks of a sequence that is not its parent."""
    parent_id, child_id = ids
    mine, right = (engine["sequences"].get(str(child_id), {}).get("block_table") for engine in (have, want))
    if mine is None or right is None or mine == right:
        return list(differences)
    others = (
        seq_id
        for seq_id, sequence in want["sequences"].items()
        if int(seq_id) not in ids and sequence["block_table"] == mine
    )
    other = next(others, None)
    if other is None:
        return list(differences)
    note = f"The child has the blocks of sequence {other}; its parent is sequence {parent_id}."
    field = f"sequence {child_id}: block_table"
    return [_of_another(difference, note) if field in difference.field else difference for difference in differences]


def _of_another(difference: Difference, note: str) -> Difference:
    return replace(difference, note=note, tags=difference.tags | {"other-sequence"})
