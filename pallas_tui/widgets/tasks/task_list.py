"""The list of tasks, the newest first."""

from typing import Final

from rich.cells import cell_len

from pallas.model import TaskRecord, TaskStatus

from ...records.task_book import UNDER_WAY
from ...state import Tone
from ...text import Glyphs, Line, cropped, fit, right
from ..pages import RecordList
from ..tones import DIM, STRONG, STYLES, shape

_STATUS: Final = 9
_AGENT: Final = 14
_AGE: Final = 6

WORDS: Final[dict[TaskStatus, tuple[str, Tone]]] = {
    "working": ("working", Tone.STARTING),
    "input_required": ("asks", Tone.DEGRADED),
    "completed": ("done", Tone.OK),
    "failed": ("failed", Tone.ERROR),
    "cancelled": ("cancelled", Tone.STOPPED),
}

EMPTY: Final = (
    "No tasks yet.\n"
    "\n"
    "A task is work that continues without its caller: an MCP client that declares the tasks extension gets "
    "one from send_message and tasks_delegate. Its progress is shown here, then its result, also after a "
    "restart.\n"
    "\n"
    "Escape goes back."
)


class TaskList(RecordList[TaskRecord]):
    """One line a task: its state, its agent, its age, its progress or its question."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="task-list")

    def line_at(self, index: int, width: int) -> Line:
        record, glyphs = self.rows[index], self._glyphs
        word, tone = WORDS[record.status]
        room = max(4, width - 2 - _STATUS - 1 - _AGENT - _AGE - 2)
        asked, progress = record.preview or "(no message)", record.progress
        beside = f" {glyphs.dot} {progress}"
        if record.status not in UNDER_WAY or not progress:
            message_parts: Line = ((fit(asked, room, glyphs), "" if record.preview else DIM),)
        elif cell_len(asked + beside) <= room:
            message_parts = ((asked, ""), (beside, DIM))
        else:
            message_parts = ((fit(progress, room, glyphs), DIM),)
        return cropped(
            (
                shape(tone, glyphs),
                (f" {word:<{_STATUS}} ", STYLES[tone] if tone is not Tone.OK else DIM),
                (fit(record.agent, _AGENT, glyphs), STRONG),
                (f"{right(age(self._now - record.created_at), _AGE)}  ", DIM),
                *message_parts,
            ),
            width,
        )


def age(seconds: float) -> str:
    """``12 s``, ``5 min``, ``3 h``, ``12 d``: at most six cells."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{min(9_999, int(seconds // size))} {unit}"
    return f"{int(seconds)} s"
