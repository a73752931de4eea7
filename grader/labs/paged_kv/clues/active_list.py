"""Clues for a wrong list of active sequences."""

from __future__ import annotations

from grader.assignment.lab import Clue
from grader.labs.paged_kv.clues.words import CREATE, FORK, FREE, INIT, words

__all__ = ["LIST"]

LIST = (
    Clue(
        rule="list",
        calls=INIT,
        facets=("list",),
        clause="Task 1/empty-list",
        hint="In an empty list prev and next of the dummy head point to the head itself: to the one in the engine that "
        "is returned, not to that of a local variable or of a struct that is copied.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("freed"),
        calls=FREE,
        clause="Task 2/free-detach",
        hint="The list still leads to the Sequence that was freed. Take the node out of the ring before the free: "
        "node->prev->next = node->next and node->next->prev = node->prev.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("order"),
        clause={"create_sequence": "Task 2/tail", "fork_sequence": "Task 3/tail"},
        hint="After {call} the sequences stand in the list as {actual}; the order must be {expected}. A new sequence "
        "goes to the tail, between head->prev and the dummy head.",
    ),
    Clue(
        rule="list",
        calls=(*CREATE, *FORK),
        facets=("list",),
        tags=words("prev"),
        clause="Part 2.5/intrusive-list",
        hint="After {call} all next links are right, but a prev link is not. An insert sets two: prev of the new node "
        "becomes the node that was last, and prev of the dummy head becomes the new node.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("prev"),
        clause="Part 2.5/intrusive-list",
        hint="After {call} all next links are right, but a prev link is not. A removal sets one: "
        "node->next->prev = node->prev.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("missing"),
        calls=(*CREATE, *FORK),
        clause={"create_sequence": "Task 2/tail", "fork_sequence": "Task 3/tail"},
        hint="After {call} the walk along next meets {actual}; it must meet {expected}. Inserting a node changes four "
        "pointers: next and prev of the new node, next of the last one, prev of the dummy head.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        calls=FREE,
        clause="Task 2/free-detach",
        hint="After {call} the walk along next meets {actual}; it must meet {expected}. Take the node out of the ring: "
        "node->prev->next = node->next and node->next->prev = node->prev, before the Sequence is freed.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        tags=words("broken"),
        clause="Part 2.5/intrusive-list",
        hint="After {call} the walk along next does not come back to the dummy head: {actual}. Inserting a node "
        "changes four pointers, and the last node's next is the dummy head, never NULL.",
    ),
    Clue(
        rule="list",
        facets=("list",),
        clause="Part 2.5/intrusive-list",
        hint="After {call} the list must hold {expected}, and holds {actual}. It is a ring through the dummy head.",
    ),
)
