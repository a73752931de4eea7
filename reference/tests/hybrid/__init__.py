"""Tests of the reference engine of the hybrid memory allocator."""
