"""Grade submissions: build one, replay cases on it, compare it with the reference, diagnose and report."""

__version__ = "0.1.0"
"""The version of this code, as in pyproject.toml. A bundle needs it here, because its code is not installed."""

NAME = "paged-kv-grader"
"""The name of the project."""
