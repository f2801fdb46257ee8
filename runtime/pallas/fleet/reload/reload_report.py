"""An attempt at a new version in one line, for the log and for a terminal."""

from collections.abc import Sequence
from typing import Final

from pallas.model import Reloaded, VerdictReached
from pallas.model.context_bill import changes_text
from pallas.model.verdict import verdict_text
from pallas.safe_text import one_line

MAX_MISTAKES: Final = 50
_MAX_LINE: Final = 800


def more_mistakes(event: Reloaded) -> list[str]:
    """The mistakes of a project's files after the first, which ``report_line`` tells; a line each."""
    if event.agent or event.outcome != "failed":
        return []
    return event.story.splitlines()[1:MAX_MISTAKES]


def report_line(event: Reloaded) -> str:
    """An attempt in one line: agent, version, duration, files and differences."""
    who = event.agent or "project"
    because = f" ({_named(event.files)})" if event.files else ""
    if event.outcome == "unchanged":
        return f"{who}: nothing changed{because}"
    if event.outcome == "failed":
        place = "" if event.error.startswith(event.place) else f"{event.place}: "
        return f"{who}: not reloaded{because}: {place}{event.error}"
    if event.outcome == "held":
        return f"{who}: version held back{because}: {event.error}; reload lets it through"
    found = [f"{each.part} {each.name}".rstrip() for each in event.changes]
    different = f": {', '.join(found[:8])}{', …' if len(found) > 8 else ''}" if found else ""
    tokens = f"; {changes_text(event.context)}" if event.context else ""
    version = f"version {event.version} is live" if event.agent else "reloaded"
    again = " again" if event.rolled_back else ""
    return f"{who}: {version}{again} after {event.seconds:.2f} s{because}{different}{tokens}"


def verdict_line(event: VerdictReached) -> str:
    """A verdict in one line: ``saved desk.py: 3 same, 1 other words (lamps: ...) after 0.41 s``."""
    what = _named(event.files) or _named(event.agents)
    return one_line(f"{event.cause} {what}: {verdict_text(event)} after {event.seconds:.2f} s", _MAX_LINE)


def _named(names: Sequence[str]) -> str:
    return f"{', '.join(names[:5])}{', …' if len(names) > 5 else ''}"
