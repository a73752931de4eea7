"""Tests of how states of Homework 3 are compared."""
