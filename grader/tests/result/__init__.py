"""Tests of what a record holds."""
