"""Which rule answers."""

import re

from .script_rules import Script, ScriptRule, When
from .scripted_conversation import ScriptedConversation


def find_rule(script: Script, seen: ScriptedConversation) -> tuple[ScriptRule, re.Match[str] | None]:
    """The first rule that fits, with the match of its regex where it has one."""
    subject = _Subject(seen)
    for rule in script.rules:
        fits, match = subject.fits(rule.when)
        if fits:
            return rule, match
    raise LookupError("a script ends with a rule that fits everything")


class _Subject:
    """A conversation with its texts casefolded once, however many rules look at them."""

    def __init__(self, seen: ScriptedConversation) -> None:
        self._seen, self._newest = seen, seen.newest
        self._text, self._user = self._newest.casefold(), seen.user.casefold()
        self._system = seen.system.casefold()

    def fits(self, when: When) -> tuple[bool, re.Match[str] | None]:
        seen = self._seen
        plain = (
            when.last in (None, seen.last)
            and when.model in (None, seen.model)
            and (when.tool is None or any(result.tool == when.tool for result in seen.results))
            and when.images in (None, seen.images > 0)
            and (when.text or "") in self._text
            and (when.user or "") in self._user
            and (when.system or "") in self._system
        )
        if not plain or when.regex is None:
            return plain, None
        match = when.regex.search(self._newest)
        return match is not None, match
