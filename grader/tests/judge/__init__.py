"""Tests of comparison, causes and points."""
