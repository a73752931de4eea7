"""From a student's file to a program that can be replayed."""
