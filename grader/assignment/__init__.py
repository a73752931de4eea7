"""What is asked: case files and rubrics, which cases are run, the submission's source, and what makes a lab.

In come files that people wrote; out come checked values, or one error that names every mistake with its line.
"""
