"""How states of Homework 3 are compared: the record that the driver writes is decoded, what cannot be is replaced, the
oracle plays the next call from there, and each difference gets a facet, tags and a sentence. Start at model.py.
"""
