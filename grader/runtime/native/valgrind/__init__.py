"""Run the cases of a C program under Valgrind: memory errors, and accesses that an operation may not make.

The input is a program with its cases. The output is errors, each with its case, its operation and the student's lines.
"""
