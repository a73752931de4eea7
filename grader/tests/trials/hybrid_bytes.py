"""`python -m grader.tests.trials.hybrid_bytes [--traces 3000]`: Part 2 of the hybrid assignment against a byte model.

The reference's allocator and a naive memory in which every byte is looked at (reference/tests/hybrid/byte_ranges.py)
are given the same random traces, 60 operations each. Replies, free large pages, owners and slots must be equal after
each. scripts/test compares the first 150. The published allocators of Jenga, from which the five steps come, are not
compared with: where several slots would do they take any, and one of their defects gives out a slot twice.
"""

from __future__ import annotations

import argparse
import sys
from itertools import islice

from reference.tests.hybrid.test_byte_ranges import differences, traces


def main() -> int:
    """Play the traces, and print the first difference."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=3000, help="how many (3000)")
    number = parser.parse_args().traces
    different = list(differences(islice(traces(), number)))
    sys.stdout.write(f"{number - len(different)} of {number} traces agree\n")
    sys.stdout.write("".join(f"the first difference: {text}\n" for text in different[:1]))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
