"""A case of Homework 3 as a standalone C program. Start at program.py."""
