"""How a submission in Python runs: `build` looks at the file, `play` runs cases, `lines` traces what went wrong.

What runs beside a student's code is in `harness/`: standard library only, never imported by the grader. It executes a
lab's driver (see `driver`), sends a canonical JSON record for each operation, and knows no expectation.
"""
