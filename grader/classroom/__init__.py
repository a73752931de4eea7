"""Grade a class: find who submitted what, grade on many workers, keep the records in a store, and compare runs.

The input is a folder, an export or a zip of a class. The output is one record for each submission; no record is lost.
"""
