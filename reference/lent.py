"""Memory that a grader lends to the functions of students: at first no two of its words are equal.

So a copied, moved or overwritten word can be recognised. A driver in C makes the same words (harness_lend).
"""

from __future__ import annotations

from array import array

_SPREAD = 0x9E3779B1  # odd, so multiplying by it maps 32-bit words one to one


def lent_words(seed: int, number: int, size: int, guard: int) -> array[int]:
    """Return the first content of the memory of `size` bytes that is lent under `number`, as ints of 4 bytes.

    The result includes `guard` bytes before and after the memory. With fewer than 2^24 words the numbers
    `number * 2^24 + place` are distinct, and so are the words.
    """
    start = (seed * 0x85EBCA6B + (number << 24)) & 0xFFFFFFFF
    words = ((start + place) * _SPREAD & 0xFFFFFFFF for place in range((guard + size + guard + 3) // 4))
    return array("i", array("I", words).tobytes())
