"""The only doors to the operating system: programs, pipes, private folders, protection, budgets, tools.

In comes a command and what it may use; out come its exit status, its bounded output and its costs.
"""
