"""Run the benchmark."""

from grader.bench.command import main

main()
