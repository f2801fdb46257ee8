"""The verdicts on saves of this session, and the one that is under way; nothing of the screen in here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pallas.model import RunningFleet, RunVerdict, VerdictProgress, VerdictReached
from pallas.safe_text import one_line, sanitize

from ..frame import FleetFrame

MAX_VERDICTS: Final = 50
_MAX_TEXT: Final = 10_000
_MAX_LINE: Final = 400
_MAX_NAME: Final = 100

VerdictKey = tuple[object, ...]
"""What tells a verdict from others, however it was learnt."""


class VerdictBook:
    """``saves`` are the last verdicts, the newest first; ``watchers`` are called when something is new.

    ``held`` are the agents whose next version is held back. ``is_watched``: the fleet watches its files.
    """

    def __init__(self, fleet: Callable[[], RunningFleet | None]) -> None:
        self._fleet = fleet
        self.saves: tuple[VerdictReached, ...] = ()
        self.progress: VerdictProgress | None = None
        self.held: tuple[str, ...] = ()
        self.is_watched = False
        self.watchers: list[Callable[[], None]] = []
        self._heard = 0
        self.is_seen = False
        """Whether the user has looked at the newest verdict."""
        self.learnt_at = 0.0
        """When that was learnt, in Unix seconds of the workbench."""
        self.has_waited = False
        """Whether versions were seen to wait because of it."""
        self._read_since = 0.0
        """The connection to an attached fleet for which its last verdict was read."""

    def absorb(self, frame: FleetFrame) -> None:
        """Note the verdicts of a frame, and how far the next one is."""
        reached = [event for event in frame.events if isinstance(event, VerdictReached)]
        for event in reached:
            self._heard += 1
            self._take(event, 0, frame.now)
        watch = frame.snapshot.watch if not frame.snapshot.stale else None
        before = self.progress, self.held, self.is_watched
        self.progress = watch.judging if watch is not None else None
        self.held = watch.held if watch is not None else ()
        self.is_watched = watch is not None
        self.has_waited = self.has_waited or bool(self.waiting)
        if reached or before != (self.progress, self.held, self.is_watched):
            self._tell()

    def is_due(self, frame: FleetFrame) -> bool:
        """Whether the last verdict is to be read: one that attached, or lost events, may not have it."""
        attachment = frame.attachment
        if attachment is None:
            return bool(frame.dropped)
        if attachment.lost_at or frame.snapshot.stale:
            return False
        if attachment.since == self._read_since and not frame.dropped:
            return False
        self._read_since = attachment.since
        return True

    async def read(self, now: float) -> None:
        """Learn the last verdict of the fleet. Raises Fault."""
        fleet, heard = self._fleet(), self._heard
        if fleet is not None:
            for event in await fleet.verdict():
                if self._take(event, self._heard - heard, now):
                    self._tell()

    def look(self) -> None:
        """The user has seen the newest verdict."""
        self.is_seen = True

    @property
    def waiting(self) -> tuple[str, ...]:
        """The agents whose next version waits because of the newest verdict."""
        last = self.saves[0] if self.saves else None
        return tuple(each for each in self.held if each in last.agents) if last and last.is_held else ()

    def find(self, event: VerdictReached) -> VerdictReached | None:
        """A verdict in here, by what the feed has of it."""
        return next((each for each in self.saves if key_of(each) == key_of(event)), None)

    def _take(self, event: VerdictReached, at: int, now: float) -> bool:
        """Add it at a place, unless it is known; returns whether it was not."""
        if self.find(event) is not None:
            return False
        before = self.saves
        if event.live == "asked":  # models have answered for a verdict that is known
            at = next((index for index, each in enumerate(before) if _is_of(event, each)), at)
            before = tuple(each for each in before if not _is_of(event, each))
        self.saves = (*before[:at], _clean(event), *before[at:])[:MAX_VERDICTS]
        if not at:
            self.is_seen, self.has_waited, self.learnt_at = False, False, now
        return True

    def _tell(self) -> None:
        for watcher in tuple(self.watchers):
            watcher()


def key_of(event: VerdictReached) -> VerdictKey:
    """What tells it from others: times and numbers depend on who tells it."""
    return event.seconds, event.first_seconds, len(event.files), tuple(event.counts.items())


def _is_of(asked: VerdictReached, before: VerdictReached) -> bool:
    """Whether models were asked for this verdict."""
    same = before.first_seconds == asked.first_seconds and len(before.files) == len(asked.files)
    return before.live in ("can ask", "asking") and same and before.seconds <= asked.seconds


def _clean(event: VerdictReached) -> VerdictReached:
    """The verdict with texts that are safe to show, also from a fleet elsewhere."""
    return replace(
        event,
        files=tuple(one_line(each, _MAX_NAME) for each in event.files),
        problem=one_line(event.problem, _MAX_LINE),
        counts={one_line(word, _MAX_NAME): number for word, number in event.counts.items()},
        runs=tuple(map(_clean_run, event.runs)),
    )


def _clean_run(run: RunVerdict) -> RunVerdict:
    return replace(
        run,
        name=one_line(run.name, _MAX_NAME),
        agent=one_line(run.agent, _MAX_NAME),
        where=one_line(run.where, _MAX_LINE),
        agents=tuple(one_line(each, _MAX_NAME) for each in run.agents),
        what=one_line(run.what, _MAX_LINE),
        before=one_line(run.before, _MAX_LINE),
        after=one_line(run.after, _MAX_LINE),
        before_text=sanitize(run.before_text, _MAX_TEXT),
        after_text=sanitize(run.after_text, _MAX_TEXT),
        request=one_line(run.request, _MAX_LINE),
    )
