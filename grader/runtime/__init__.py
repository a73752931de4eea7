"""How a submission runs: what can be observed of a program, operation by operation, whatever its language.

The records here travel from a runtime, such as `grader.runtime.native`, to the judge.
"""
