"""Tests of the doors to the operating system."""
