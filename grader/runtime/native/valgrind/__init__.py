"""Run the cases of a C program under Valgrind: memory errors, and accesses that an operation may not make.

Comes in: a program, its cases, and what each operation may touch. Goes out: `Checked`, that is errors with their case,
operation and lines, and the cases that were not observed in full.
"""
