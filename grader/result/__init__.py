"""Build the result record of a finished attempt, with the states that reports draw."""
