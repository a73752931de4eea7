"""Measure the cost of grading against the alternatives. `scripts/bench` runs it; start reading at __main__.py."""
