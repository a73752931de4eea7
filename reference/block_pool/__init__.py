"""The prefix-caching KV-cache manager of the block pool assignment, after its handout.

Each task of the handout is a module, and what it adds to the state is a class: `free_queue` (Task 1), `pool` (Tasks 2,
3 and 6), `requests` (Task 4), `manager` (Tasks 5 and 6). Ids represent blocks, and Python lists represent linked lists.
"""

from reference.block_pool.manager import Manager

__all__ = ["Manager"]
