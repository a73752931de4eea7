"""The runtime of Python submissions."""
