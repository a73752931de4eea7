"""The scan of what gcc made of a submission: nothing of it runs before it is known that it cannot forge results.

Comes in: the student's object and the programs linked from it. Goes out: findings that score 0 until a person has
looked at them, and advice on functions of libc that a memory manager does not need.
"""
