"""Tests of C programs."""
