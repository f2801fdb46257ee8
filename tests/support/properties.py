"""How many of the examples that a property names are tried; Hypothesis' profile sets the share."""

from typing import Any

from hypothesis import settings


def examples(most: int, **more: Any) -> settings:
    """Try so many in CI and in the thorough profile, and in another one as much less as it is below 100."""
    share = settings.default.max_examples / 100 if settings.default is not None else 1
    return settings(max_examples=max(1, round(most * share)), deadline=None, **more)
