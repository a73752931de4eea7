"""Many submissions: who handed in what, graded by many workers, kept in a store, compared between runs.

In comes a folder, an export or a zip of a class; out come records, one for each submission, none of them lost.
"""
