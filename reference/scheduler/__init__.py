"""The scheduler assignment, after its handout: Tasks 1 to 4 are `scheduler`, Task 5 is `budget`, Task 6 `fragmentation`.

The pool under the scheduler is the engine of the block pool assignment, which holds the same facts.
"""

from reference.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
