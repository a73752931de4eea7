"""Ready-made bundles for the platforms that use the grader. A new bundle is a function and an entry of `BUNDLES`."""

from __future__ import annotations

from grader.bundles.bundle import Bundle
from grader.bundles.platforms import BUNDLES

__all__ = ["BUNDLES", "Bundle"]
