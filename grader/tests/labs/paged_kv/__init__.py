"""Tests of Homework 3."""
