"""Tests of the offload lab: its device, its checker, its judging."""
