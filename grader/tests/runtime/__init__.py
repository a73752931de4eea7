"""Tests of what is observed of a program."""
