"""From a program's log to a state that can be compared: what of it is wrong in memory, in its order, in its size.

`derive` takes what a case reported and returns states of plain values, in which everything about memory is a list of
sentences on what is wrong; those of a right program are empty. `replay` follows the log, `rows` compares what lies in
memory, `model_check` what was computed, `sentences` says it.
"""
