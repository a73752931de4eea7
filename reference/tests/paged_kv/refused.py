"""A setting, and the calls that must fail in it."""

from __future__ import annotations

SETTING = ["create_sequence 1 21", "fork_sequence 1 2", "create_sequence 3 16", "append_kv 3 5"]
"""Four blocks, all in use, block 1 shared in its middle, sequence 3 with room in its last block."""

REFUSED = {
    "create_sequence 9 0": "Task 2/length",
    "create_sequence 9 -5": "Task 2/length",
    "create_sequence 1 1": "Task 2/unique-id",
    "create_sequence 9 4097": "Task 2/too-long",
    "create_sequence 9 1": "Task 2/no-room",
    "free_sequence 9": "Task 2/free-unknown",
    "fork_sequence 9 8": "Task 3/parent",
    "fork_sequence 1 3": "Task 3/unique-id",
    "append_kv 9 5": "Task 4/unknown",
    "append_kv 1 5": "Task 4/oom",
    "llm_init NULL 64": "Task 1/null-pool",
    "@NULL create_sequence 9 1": "Constraint 1/null-engine",
    "@NULL free_sequence 1": "Constraint 1/null-engine",
    "@NULL fork_sequence 1 9": "Constraint 1/null-engine",
    "@NULL append_kv 1 5": "Constraint 1/null-engine",
    "@NULL llm_destroy": "Constraint 1/null-engine",
}
