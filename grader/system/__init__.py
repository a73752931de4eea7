"""The only interface to the operating system: programs, pipes, private folders, protection, budgets, tools.

The input is a command and what it may use. The output is its exit status, its bounded output and its costs.
"""
