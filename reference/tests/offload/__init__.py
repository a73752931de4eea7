"""Tests of the reference engine of the offload assignment."""
