"""Tests of the reference engines: one package per assignment."""
