"""Tests of case files, rubrics and submitted sources."""
