"""How a submission runs: what can be observed of a program of any language, operation by operation.

A runtime, such as `grader.runtime.native`, passes the records defined here to the judge. Nothing here belongs to one
language; a runtime has subclasses for what depends on its language.
"""
