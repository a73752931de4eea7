"""Tests of the Homework 3 engine: by clause, by record, by state machine and against a second model."""
