"""C submissions: compiled, linked with the harness, replayed in the sandbox, checked by Valgrind.

The input is a source file and cases. The output is observations (grader.runtime): what went wrong as symptoms, in words
that need no C to be judged, and source lines.
"""
