"""Tests of the scan of objects and programs."""
