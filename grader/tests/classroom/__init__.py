"""Tests of batches, stores and classes."""
