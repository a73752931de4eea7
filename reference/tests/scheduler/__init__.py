"""Tests of the reference engine of the scheduler."""
