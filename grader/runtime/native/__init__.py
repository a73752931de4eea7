"""C submissions: gcc builds them, the harness plays cases on them, Valgrind looks at them.

The input is a source file and cases. The output is the records of `grader.runtime`: what was built, what each operation
left, and what went wrong, in words that need no C to be judged, with source lines. Begin with `NativeRuntime`.
"""
