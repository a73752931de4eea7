"""The launcher, which gives up rights before it executes a compiler or a student's program, and its filters."""
