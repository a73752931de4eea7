"""Measure the cost of grading, and of alternatives to it. `scripts/bench` runs it; start reading at __main__.py."""
