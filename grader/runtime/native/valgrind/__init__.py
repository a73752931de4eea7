"""Valgrind over the cases of a C program: memory errors, and accesses that an operation may not make.

In comes a program with its cases; out come errors, each with its case, its operation and the student's lines.
"""
