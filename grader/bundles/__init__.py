"""Ready-made bundles for the places where results must land. One more is one module and one line in `BUNDLES`."""

from __future__ import annotations

from grader.bundles import actions, classroom50, gradescope, starter
from grader.bundles.bundle import Bundle

__all__ = ["BUNDLES", "Bundle"]

BUNDLES: dict[str, Bundle] = {
    "gradescope": gradescope.BUNDLE,
    "classroom50": classroom50.BUNDLE,
    "actions": actions.BUNDLE,
    "starter": starter.BUNDLE,
}
"""What `grade pack` makes, by its name."""
