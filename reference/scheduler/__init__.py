"""The scheduler assignment, after its handout: Tasks 1 to 4, the memory budget (Task 5), fragmentation (Task 6).

The pool under the scheduler is the engine of the block pool assignment, which holds the same facts.
"""

from reference.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
