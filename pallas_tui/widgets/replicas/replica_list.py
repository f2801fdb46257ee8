"""The list of replicas, the oldest first, and the details of one."""

from collections.abc import Hashable, Iterator
from typing import Final

from pallas.model import ReplicaRecord, ReplicaState

from ...state import Tone
from ...text import Glyphs, Line, count, cropped, duration, fit, moment, right
from ..fact_lines import ended, fact
from ..row_list import RowList
from ..tasks.task_list import age
from ..tones import DIM, STRONG, STYLES, shape

TONES: Final[dict[ReplicaState, Tone]] = {
    "starting": Tone.STARTING,
    "serving": Tone.OK,
    "draining": Tone.DEGRADED,
    "dead": Tone.ERROR,
}
EMPTY: Final = (
    "No replicas.\n"
    "\n"
    "The fleets on one database are replicas of each other: each can continue the runs of another one.\n"
    "\n"
    "Escape goes back."
)
_ID: Final = 8
_STATE: Final = 9
_RELEASE: Final = 8
_AGE: Final = 6
_RUNS: Final = 8


class ReplicaLines(RowList[ReplicaRecord]):
    """Its state, its id, its release, its age, its runs, and where it is."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="replica-list", hint=EMPTY)

    def row_key(self, row: ReplicaRecord) -> Hashable:
        return row.id

    def line_at(self, index: int, width: int) -> Line:
        record, glyphs = self.rows[index], self._glyphs
        tone = TONES[record.state]
        room = max(4, width - 2 - _STATE - _ID - 1 - _RELEASE - _AGE - 2 - _RUNS - 2)
        here = " (here)" if record.is_here else ""
        place = f"{record.host} pid {record.pid}"
        return cropped(
            (
                shape(tone, glyphs),
                (f" {record.state:<{_STATE}} ", STYLES[tone] if tone is not Tone.OK else DIM),
                (fit(record.id, _ID, glyphs), STRONG),
                (" ", ""),
                (fit(record.release, _RELEASE, glyphs), ""),
                (f"{right(age(self._now - record.started_at), _AGE)}  ", DIM),
                (f"{count(record.runs, 'run'):<{_RUNS}} ", "" if record.runs else DIM),
                (fit(place, max(4, room - len(here)), glyphs).rstrip(), DIM),
                (here, STRONG),
            ),
            width,
        )


def facts_of(record: ReplicaRecord, now: float) -> Iterator[tuple[str, str]]:
    """Yield the facts about a replica, by name."""
    yield "is", record.state + (", the one this workbench talks to" if record.is_here else "")
    continued = f", {record.continued} of them taken over" if record.continued else ""
    yield "runs", f"{record.runs} under way{continued}"
    yield "took", f"{count(record.taken_over, 'run')} of dead replicas"
    yield "where", f"process {record.pid} on {record.host}"
    yield "release", f"Pallas {record.release}"
    yield "started", f"{moment(record.started_at, now)}, {age(now - record.started_at)} ago"
    if record.beat_age is None:
        yield "beat", "none: on SQLite its lock shows whether it runs"
    else:
        yield "beat", f"{duration(record.beat_age, running=True)} ago"


def details(record: ReplicaRecord, width: int, height: int, now: float) -> list[Line]:
    """Return the details next to the list."""
    lines: list[Line] = [((f"replica {record.id}", STRONG),), ()]
    for label, text in facts_of(record, now):
        lines += fact(label, text, width)
    return ended(lines, height)


def details_text(record: ReplicaRecord, now: float) -> str:
    """The same as text."""
    known = "\n".join(f"{label:<8}{text}" for label, text in facts_of(record, now))
    return f"replica {record.id}\n\n{known}"
