"""A small lab with submissions in C, for tests: a ring of ints."""
