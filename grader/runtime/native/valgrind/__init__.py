"""Run the cases of a C program under Valgrind: memory errors, and accesses that an operation may not make.

The input is a program, its cases, and what each operation may touch. The output is `Checked`: errors with their case,
operation and lines, and the cases that were not observed in full.
"""
