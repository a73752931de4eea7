"""CS110 Homework 3: reference, cases, driver, words, clues and C programs joined to a lab. Start at lab.py."""
