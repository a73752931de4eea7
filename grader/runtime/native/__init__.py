"""C submissions: compiled, linked with the harness, replayed in the sandbox, checked by Valgrind.

The input is a source file and cases. The output is observations (grader.runtime) and, where something is wrong, source
lines.
"""
