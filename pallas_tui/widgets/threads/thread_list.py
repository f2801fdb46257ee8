"""The list of threads, the one that was used last first."""

from time import localtime, strftime
from typing import Final

from pallas.model import ThreadRecord

from ...text import Glyphs, Line, cropped, fit, right
from ..pages import RecordList
from ..tones import DIM, STRONG

_WHEN: Final = 7
_AGENT: Final = 14
_ORIGIN: Final = 10
_COUNT: Final = 6
_NAMED: Final = 12
"""Cells of a title beside what was found."""
_ROOMY: Final = 60
"""Cells from which on the origin has a column."""

EMPTY: Final = (
    "No threads yet.\n"
    "\n"
    "Every conversation with an agent is stored as a thread: here in the chat, by `pallas chat AGENT`, over "
    "REST (POST /api/v1/agents/AGENT/chat), or by any MCP client that sends a conversation_id. It is listed "
    "here, also after a restart, and can be continued.\n"
    "\n"
    "Escape goes back; write to an agent, and look here again."
)


class ThreadList(RecordList[ThreadRecord]):
    """One line a thread: when it was used last, its agent, its title, where it began, how many messages."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="thread-list")

    def line_at(self, index: int, width: int) -> Line:
        record, glyphs = self.rows[index], self._glyphs
        origin = f" {fit(record.origin, _ORIGIN, glyphs)}" if width >= _ROOMY else ""
        room = max(4, width - _WHEN - 1 - _AGENT - 1 - len(origin) - _COUNT)
        title = record.title or "(no title)"
        if record.branched_from:
            title = f"{glyphs.corner} {title}"
        # What a search found has the larger part.
        named = min(room, max(_NAMED, room // 3)) if record.snippet else room
        found = fit(f" {record.snippet}", room - named, glyphs) if record.snippet else ""
        return cropped(
            (
                (f"{when(used(record), self._now):<{_WHEN}} ", DIM),
                (f"{fit(record.agent, _AGENT, glyphs)} ", STRONG),
                (fit(title, named, glyphs), "" if record.title else DIM),
                (found, DIM),
                (origin, DIM),
                (right(str(record.messages), _COUNT), DIM),
            ),
            width,
        )


def used(record: ThreadRecord) -> float:
    """When it was used last, in Unix seconds."""
    return record.last_turn_at or record.created_at


def when(at: float, now: float) -> str:
    """``14:02`` of today, ``3 May``, ``05/2024``."""
    then, today = localtime(at), localtime(now)
    if (then.tm_year, then.tm_yday) == (today.tm_year, today.tm_yday):
        return strftime("%H:%M", then)
    if then.tm_year == today.tm_year:
        return f"{then.tm_mday} {strftime('%b', then)}"
    return strftime("%m/%Y", then)
