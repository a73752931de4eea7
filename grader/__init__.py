"""Who compares: builds a submission, replays cases on it, compares, diagnoses and reports."""

__version__ = "0.1.0"
