"""Tests of the block pool's lab."""
