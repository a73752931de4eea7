"""The scheduler assignment, after its handout: Tasks 1 to 4, the memory budget (Task 5), fragmentation (Task 6).

The engine of the block pool assignment is used as the pool under the scheduler: its state has the same facts.
"""

from reference.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
