"""Judge a submission: compare observations with the reference, then find causes, then compute points.

The input is the observations of every case. The output is comparisons, findings, the most likely cause, and the score.
"""
