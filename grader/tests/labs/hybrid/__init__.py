"""Tests of the table of the hybrid assignment."""
