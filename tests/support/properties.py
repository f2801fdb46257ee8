"""How many of the examples that a property names are tried; Hypothesis' profile sets the share."""

from typing import Any

from hypothesis import settings

LEAN = "lean"
"""A quarter of the examples: for everyday runs, each of which tries others."""
THOROUGH = 100
"""What ``max_examples`` of a profile is when each test tries all examples that it names."""

settings.register_profile(LEAN, max_examples=THOROUGH // 4, deadline=None)
settings.register_profile("thorough", max_examples=THOROUGH, deadline=None)


def examples(most: int, **more: Any) -> settings:
    """Try so many in the thorough profile and in CI, and as much less in another one as it is smaller."""
    share = settings.default.max_examples / THOROUGH if settings.default is not None else 1
    return settings(max_examples=max(1, round(most * share)), deadline=None, **more)
