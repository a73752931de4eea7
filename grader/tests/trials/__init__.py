"""Tests that take too long for every run, or need a machine of their own.

`python -m grader.tests.trials.NAME` starts one of them, `scripts/test --all` all of them after the tests.
"""
