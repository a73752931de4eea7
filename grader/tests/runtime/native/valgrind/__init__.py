"""Tests of Valgrind."""
