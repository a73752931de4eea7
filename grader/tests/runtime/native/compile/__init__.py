"""Tests of building C submissions."""
