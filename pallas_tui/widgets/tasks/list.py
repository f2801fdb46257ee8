"""The list of tasks, the newest first."""

from collections.abc import Hashable, Sequence
from typing import Final

from rich.cells import cell_len

from pallas.model import TaskRecord, TaskStatus

from ...state import Tone
from ...tasks.book import UNDER_WAY, Listed
from ...text import Glyphs, Line, cropped, fit, right, wrapped
from ..lines import LineView
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
    "A task is work that goes on without whoever asked for it: an MCP client that declares the tasks "
    "extension gets one from send_message and tasks_delegate. How far it is stands here meanwhile, and what "
    "came of it afterwards, also after a restart.\n"
    "\n"
    "Escape goes back."
)


class TaskList(LineView):
    """One line a task: how it is, its agent, its age, how far it is or what was asked."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="task-list")
        self._glyphs = glyphs
        self._shown: Sequence[Listed] = ()
        self._places: dict[str, int] = {}
        self._now = 0.0
        self._hint = ""

    @property
    def selected(self) -> TaskRecord | None:
        """The task under the cursor."""
        return self._shown[self.cursor].record if self.cursor < len(self._shown) else None

    @property
    def shown(self) -> int:
        """How many are listed."""
        return len(self._shown)

    @property
    def near_end(self) -> bool:
        """Whether the last of them is in view, or soon."""
        return self.scroll_offset.y + 2 * max(1, self._height) >= len(self._shown)

    def take(self, shown: Sequence[Listed], now: float, hint: str) -> None:
        """List these; ``hint`` stands there when they are none."""
        self._shown, self._now, self._hint = shown, now, hint
        self._places = {each.record.id: index for index, each in enumerate(shown)}
        self.reload()
        if not shown:
            self.refresh()

    def tick(self, now: float) -> None:
        """Time went on."""
        self._now = now
        self.repaint()

    def line_count(self) -> int:
        return len(self._shown)

    def key_at(self, index: int) -> Hashable:
        return self._shown[index].record.id

    def find(self, key: Hashable) -> int | None:
        return self._places.get(str(key))

    def line_at(self, index: int, width: int) -> Line:
        record, glyphs = self._shown[index].record, self._glyphs
        word, tone = WORDS[record.status]
        room = max(4, width - 2 - _STATUS - 1 - _AGENT - _AGE - 2)
        asked, progress = record.preview or "(no message)", record.progress
        beside = f" {glyphs.dot} {progress}"
        if record.status not in UNDER_WAY or not progress:
            said: Line = ((fit(asked, room, glyphs), "" if record.preview else DIM),)
        elif cell_len(asked + beside) <= room:
            said = ((asked, ""), (beside, DIM))
        else:
            said = ((fit(progress, room, glyphs), DIM),)
        return cropped(
            (
                shape(tone, glyphs),
                (f" {word:<{_STATUS}} ", STYLES[tone] if tone is not Tone.OK else DIM),
                (fit(record.agent, _AGENT, glyphs), STRONG),
                (f"{right(age(self._now - record.created_at), _AGE)}  ", DIM),
                *said,
            ),
            width,
        )

    def empty(self, width: int) -> list[Line]:
        return [((line, DIM),) for part in self._hint.split("\n") for line in wrapped(part, width) or [""]]


def age(seconds: float) -> str:
    """``12 s``, ``5 min``, ``3 h``, ``12 d``: at most six cells."""
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{min(9_999, int(seconds // size))} {unit}"
    return f"{int(seconds)} s"
