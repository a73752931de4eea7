"""How a submission in Python runs: `runtime` checks the file, `play` runs cases and traces what went wrong.

The code that runs in a student's process is in `harness/`: standard library only, never imported by the grader. It
executes a lab's driver (see `driver`), sends a canonical JSON record for each operation, and gets no expected value.
"""
