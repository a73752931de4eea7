"""Tests of values that every room uses."""
