"""Tests of the reference engine of the block pool."""
