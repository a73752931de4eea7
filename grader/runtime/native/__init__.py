"""C submissions: gcc builds them, the harness plays cases on them, Valgrind looks at them.

Comes in: a source file and cases. Goes out: the records of `grader.runtime`: what was built, what each operation left,
and what went wrong, in words that need no C to be judged, with source lines. `NativeRuntime` is the way in.
"""
