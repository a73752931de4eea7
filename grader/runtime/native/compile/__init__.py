"""Build a student's file into programs that can be replayed.

Comes in: the source, the lab's header, driver and functions (`CProject`). Goes out: the programs, or findings that say
why there are none. A failure that is this machine's own is raised, never blamed on the file.
"""
