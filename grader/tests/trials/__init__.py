"""Tests that take too long for every run, or need a machine of their own; start each with `python -m`."""
