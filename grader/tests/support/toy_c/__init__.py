"""A small lab with Python submissions, for tests: a shelf of boxes that several users may share."""
