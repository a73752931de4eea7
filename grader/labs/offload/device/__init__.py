"""The grader's device: a log is checked, replayed with real numbers, and looked through for races.

In comes the log of a program, entry by entry, as it was sent: it may be anything. `device` checks every entry again and
makes calls of them; `dense` is the model, `schedules` runs calls in an order that a device may choose, `races` and
`overlap` look at the order that the program itself demands.
"""
