"""C submissions: compiled, linked with our harness, replayed in the sandbox, looked at by Valgrind.

In come a source file and cases; out come observations (grader.runtime) and, where something is wrong, source lines.
"""
