"""Tests of the bundles."""
