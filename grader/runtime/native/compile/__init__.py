"""Build a student's file into programs that can be replayed, and scan them for what could forge results.

The input is the source, the lab's header, driver and functions (`CProject`). The output is the programs, or findings
that say why there are none. A failure that is this machine's own is raised, never blamed on the file. A program that
the scan rejects scores 0 until a person has looked at it.
"""
