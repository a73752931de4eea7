"""The input of a grading: case files, rubrics, the cases to run, the submission's source, the definition of a lab.

The input is files that people wrote. The output is checked values, or one error that names every mistake with its line.
"""
