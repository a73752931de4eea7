"""Make `python -m grader` do the same as the command `grade`."""

from grader.cli import main

main()
