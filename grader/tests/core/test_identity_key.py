"""Keys by identity."""

from __future__ import annotations

from grader.core.identity_key import Same


def test_equal_values_are_not_the_same() -> None:
    """Only the very object itself is; the key is no longer than the object's life."""
    one, other = [1], [1]

    assert Same(one) == Same(one)
    assert hash(Same(one)) == hash(Same(one))
    assert Same(one) != Same(other)
    assert {Same(one): "kept"}.get(Same(other)) is None
