"""`python -m grader.tests.trials.naive_model`: the engine against a naive model, after each of 160,000 operations.

scripts/test compares 72,000 others (reference/tests/paged_kv/test_naive.py).
"""

from __future__ import annotations

import sys

import pytest

from reference.tests.paged_kv.test_naive import MORE, agree


def main() -> int:
    """Play all chunks of traces, with the shortest trace for each in which the models disagree."""
    failed = 0
    for number, (profile, chunk) in enumerate(MORE, start=1):
        sys.stderr.write(f"\r{number} of {len(MORE)}")
        try:
            agree(profile, chunk)
        except (AssertionError, pytest.fail.Exception) as error:
            failed += 1
            sys.stdout.write(f"\n{profile.name} {chunk}: {error}\n")
    sys.stdout.write(f"\n{len(MORE) - failed} of {len(MORE)} chunks of traces agree\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
