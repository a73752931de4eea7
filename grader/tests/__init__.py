"""Tests of the grader, and its golden files."""
