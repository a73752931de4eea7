"""The launcher that gives up rights before it becomes a compiler or a student's program, and its filters."""
