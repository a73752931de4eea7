"""Ready-made bundles for the platforms that use the grader. A new bundle needs one module and one line in `BUNDLES`."""

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
"""The bundles that `grade pack` makes, by name."""
