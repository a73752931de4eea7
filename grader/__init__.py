"""Who compares: builds a submission, replays cases on it, compares, diagnoses and reports."""

__version__ = "0.1.0"
"""The running code's own, as in pyproject.toml: a bundle's code runs where nothing was installed of it."""

NAME = "paged-kv-grader"
"""The project's."""
