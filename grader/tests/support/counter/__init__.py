"""A second lab for the tests: a counter, written as a shell script. It proves that nothing outside a lab and its
runtime knows C, and is the example for the next lab.

`model.py` says what is right, `runtime.py` how a submission runs, `lab.py` joins them with the cases in `cases/`.
"""
