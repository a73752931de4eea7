"""The scheduler assignment, after its handout: Tasks 1 to 4, the memory budget (Task 5), fragmentation (Task 6).

The manager under the scheduler is the engine of the block pool assignment. Its state has the same facts as that of the
manager that students are given.
"""

from reference.scheduler.scheduler import Scheduler

__all__ = ["Scheduler"]
