"""C submissions: gcc builds them, the harness plays cases on them, Valgrind checks them.

The input is a source file and cases. The output is the records of `grader.runtime`: what was built, the state after
each operation, and what went wrong, with source lines. The judge needs to know nothing of C. Start reading
at `NativeRuntime`.
"""
