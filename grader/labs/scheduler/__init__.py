"""The scheduler assignment: preemption, memory budget and fragmentation, in Python over a pool that is given."""
