"""Types that every package uses: verdicts and findings, cases, the result record, pictures, errors, plain text.

They are values only: the packages above create them, and all packages read them. Nothing here starts a program.
"""
