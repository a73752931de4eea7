"""CS110 Homework 3: a lab of reference, cases, driver, texts and C programs. Start at lab.py."""
