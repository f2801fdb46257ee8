"""Reasons why an agent does not answer: complete for operators, reduced for callers."""

import re
from typing import Final

LAST_SAID: Final = "; the last on its stderr: "
"""Separates how a process ended from what it wrote, which is for operators only."""
_ASIDE: Final = re.compile(r"\([^()]*\)")
_DETAILS: Final = "(the log has the details)"
_HIDDEN: Final = "its code failed; the log has the details"
_WHERE: Final = re.compile(r"\A[\w./-]+\.\w+:\d+: ")
_PLACE: Final = re.compile(
    r"(?<![\w:/.])/[\w.-]+(?:/[\w.-]*)*"  # an absolute path, and no URL
    # A file, except those that every project has.
    r"|(?<![\w./-])(?!(?:agents|organism|fastagent\.config|fastagent\.secrets)\.yaml\b)"
    r"[\w./-]+\.(?:py|ya?ml|md|json|toml|so)\b"
    r"|\b[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning)\b"
    r"|\bTraceback\b|\bline \d+"
)


def health_for_callers(message: str, reason: str) -> str:
    """The message of a health, with ``reason`` and the reasons of other agents reduced for callers."""
    text = message.replace(reason, for_callers(reason)) if reason else message
    text = _ASIDE.sub(lambda found: _DETAILS if _PLACE.search(found[0]) else found[0], text)
    return text if not _PLACE.search(text) else _DETAILS[1:-1]


def for_callers(reason: str) -> str:
    """The reason without its place and without a process's output; a general text if it names code."""
    text = _WHERE.sub("", reason.partition(LAST_SAID)[0])
    return _HIDDEN if _PLACE.search(text) else text
