"""Which rule answers."""

import re

from .conversation import Conversation
from .rules import Rule, Script, When


def find_rule(script: Script, seen: Conversation) -> tuple[Rule, re.Match[str] | None]:
    """The first rule that fits, with the match of its regex where it has one."""
    for rule in script.rules:
        fits, match = _fits(rule.when, seen)
        if fits:
            return rule, match
    raise LookupError("a script ends with a rule that fits everything")


def _fits(when: When, seen: Conversation) -> tuple[bool, re.Match[str] | None]:
    plain = (
        when.last in (None, seen.last)
        and when.model in (None, seen.model)
        and (when.tool is None or any(result.tool == when.tool for result in seen.results))
        and when.images in (None, seen.images > 0)
        and _holds(seen.newest, when.text)
        and _holds(seen.user, when.user)
        and _holds(seen.system, when.system)
    )
    if not plain or when.regex is None:
        return plain, None
    match = when.regex.search(seen.newest)
    return match is not None, match


def _holds(text: str, part: str | None) -> bool:
    return part is None or part in text.casefold()
