"""Tests that take too long for every run, or need a machine of their own: each is started by `python -m`."""
