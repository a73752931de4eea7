"""Words that every room uses: verdicts and findings, cases, the result record, pictures, errors, plain text.

Values only: they are made by the rooms above and read by all of them. Nothing here starts a program.
"""
