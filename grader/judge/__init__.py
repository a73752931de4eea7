"""What is right and what is not: observations against the reference, then causes, then points.

In come the observations of every case; out come comparisons, findings, the most likely cause, and the score.
"""
