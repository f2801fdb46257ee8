"""The events of a fleet as server-sent events, for readers that are late, slow or reconnect."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import replace
from time import monotonic
from typing import Any, Final

from sse_starlette import ServerSentEvent

from pallas.model import (
    Event,
    FleetPort,
    FleetSnapshot,
    MessagePassed,
    QuestionAsked,
    Routed,
    RunEvent,
    RunFinished,
    RunStarted,
    RunVerdict,
    StepChanged,
    TextDelta,
    TodoChanged,
    VerdictReached,
    codec,
)

PERIOD: Final = 0.05
"""Seconds between two looks at the fleet."""
SNAPSHOT_EVERY: Final = 0.25
"""Seconds between two snapshots at least; one is sent only when it differs from the last."""
BATCH: Final = 500
"""Events that are read at once: a few milliseconds of the fleet's loop."""
BACKLOG_PAUSE: Final = 0.02
"""Seconds between two reads while more is waiting: of a flood a part is sent, and the rest is counted."""
MAX_MESSAGE: Final = 256 * 1024
"""Bytes of one message, unless a single event is larger."""
MAX_DELTA: Final = 16 * 1024
"""Characters of model text that are joined into one event."""

_REST: Final = 400  # about what an event takes besides its text


def event_id(boot: str, seq: int) -> str:
    """The position of a reader: the start of the fleet, and the last event."""
    return f"{boot}:{seq}"


def resume_at(boot: str, last_id: str) -> int | None:
    """The number to resume after; 0 for the id of another start of the fleet, None for an invalid id."""
    before, colon, number = last_id.rpartition(":")
    if not colon or not number.isascii() or not number.isdigit() or len(number) > 15:
        return None
    return int(number) if before == boot else 0


async def stream(
    fleet: FleetPort,
    boot: str,
    seq: int,
    ended: Callable[[], bool],
    *,
    interval_s: float = PERIOD,
    shown: Callable[[Event], Event] | None = None,
) -> AsyncIterator[ServerSentEvent]:
    """Messages from after event ``seq`` until ``ended``. Nothing is queued for the reader.

    ``hello`` comes first; ``events`` holds some of them and how many left the ring unread; ``snapshot`` the
    fleet whenever it differs; ``bye`` is the last. Each has the id to resume from. A reader that is slow
    loses the events that left the ring. ``shown`` returns what this reader may see of an event.
    """
    sent: FleetSnapshot | None = None
    due = 0.0
    yield _message("hello", boot, seq, {"boot": boot})
    while True:
        last = ended()
        batch = fleet.since(seq, BATCH)
        found = batch.events if shown is None else tuple(map(shown, batch.events))
        for events, upto, dropped in _messages(found, batch.dropped, batch.next):
            seq = upto
            yield _message("events", boot, seq, {"dropped": dropped, "events": events})
        seq = batch.next
        if len(batch.events) == BATCH:
            await asyncio.sleep(BACKLOG_PAUSE)
            continue
        if last or monotonic() >= due:
            # After the events: a run that they do not end yet is still counted in the snapshot.
            due = monotonic() + SNAPSHOT_EVERY
            snapshot = fleet.snapshot()
            if snapshot != sent:
                sent = snapshot
                yield ServerSentEvent(codec.encode(snapshot).decode(), event="snapshot")
        if last:
            yield _message("bye", boot, seq, {})
            return
        await asyncio.sleep(interval_s)


def for_lookers(event: Event) -> Event:
    """The event for a token that may only look: without texts, or why a message was refused."""
    match event:
        case RunStarted():
            return replace(event, preview="")
        case TextDelta():
            return replace(event, text="")
        case RunFinished():
            return replace(event, partial="")
        case Routed():
            return replace(event, why="")
        case StepChanged():  # a digest tells whether a text was guessed
            return replace(event, step=replace(event.step, url="", digest="", fault=""))
        case TodoChanged():
            return replace(event, description="")
        case MessagePassed():
            return replace(event, detail="")
        case QuestionAsked():
            return replace(event, message="")
        case VerdictReached():
            return replace(event, runs=tuple(map(_without_texts, event.runs)))
        case _:
            return event


def _without_texts(run: RunVerdict) -> RunVerdict:
    return replace(run, what="", before="", after="", before_text="", after_text="")


def _message(kind: str, boot: str, seq: int, document: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(codec.dumps(document).decode(), event=kind, id=event_id(boot, seq), sep="\n")


def _messages(
    events: Iterable[Event], dropped: int, upto: int
) -> Iterator[tuple[list[dict[str, Any]], int, int]]:
    """Split the events into bounded parts: each with its last number, and the dropped events."""
    part: list[Event] = []
    size = 0
    for event in events:
        room = len(getattr(event, "text", "")) + len(getattr(event, "partial", "")) + _REST
        if part and size + room > MAX_MESSAGE:
            yield _encoded(part), part[-1].seq, dropped
            part, size, dropped = [], 0, 0
        part.append(event)
        size += room
    if part or dropped:
        yield _encoded(part), upto, dropped


def _encoded(part: list[Event]) -> list[dict[str, Any]]:
    # Joined within a part only: a reader that resumes between two parts has lost nothing.
    return [codec.encode_event(event) for event in coalesced(part)]


def coalesced(events: Iterable[Event]) -> list[Event]:
    """Return the events in order, with adjacent pieces of a run's text joined.

    A joined piece has the place, the number and the time of its last part.
    """
    joined: list[Event | None] = []
    open_pieces: dict[str, int] = {}
    for event in events:
        if not isinstance(event, RunEvent):
            joined.append(event)
            continue
        place = open_pieces.pop(event.run_id, None)
        if isinstance(event, TextDelta) and not event.rollback:
            before = joined[place] if place is not None else None
            if isinstance(before, TextDelta) and _joins(before, event):
                assert place is not None
                joined[place] = None
                event = replace(event, text=before.text + event.text)
            open_pieces[event.run_id] = len(joined)
        joined.append(event)
    return [event for event in joined if event is not None]


def _joins(before: TextDelta, after: TextDelta) -> bool:
    same = (before.agent, before.reasoning, before.actor) == (after.agent, after.reasoning, after.actor)
    return same and len(before.text) + len(after.text) <= MAX_DELTA
