"""From a finished attempt to the result record, with the states that reports draw."""
