"""Tests of random traces, and of how a failing trace is made small."""
