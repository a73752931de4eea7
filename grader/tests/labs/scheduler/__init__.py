"""Tests of the scheduler lab."""
