"""Build a student's file into a program that can be replayed."""
