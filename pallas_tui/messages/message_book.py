"""The messages of the last runs: events report them, and their XML is read when the user looks."""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final

from pallas.model import Envelope, Fault, FaultType, MessagePassed
from pallas.safe_text import one_line, sanitize

from ..frame import FleetFrame

MAX_RUNS: Final = 300
MAX_MESSAGES: Final = 40_000
"""Messages of all runs; those of the oldest run are dropped first."""
MAX_XML: Final = 48 * 1024 * 1024
"""Characters of XML that are held of one run while the user looks at it."""
PAGE: Final = 500
DEADLINE: Final = 35.0
"""Seconds that a page may take; a fleet gives up by itself a little before."""
_LINE: Final = 200
_LINES: Final = frozenset(
    ("run_id", "agent", "sender", "to", "frame", "route", "outcome", "parent", "left", "payload", "code")
)
_EVENT_KEYS: Final = tuple(
    each.name for each in fields(Envelope) if each.name not in ("xml", "cut", "seconds")
)


class RunEnvelopes:
    """The messages of one run by their numbers. ``version`` grows with every change.

    ``left_out`` counts those that are no longer kept. ``shuffled`` grows when a message was added, removed or
    changed anywhere but at the end.
    """

    def __init__(self, run_id: str, agent: str) -> None:
        self.run_id, self.agent = run_id, agent
        self.version = 0
        self.refused = 0
        self.left_out = 0
        self.shuffled = 0
        self._numbers: list[int] = []
        self._by: dict[int, Envelope] = {}
        self._spans: dict[str, str] = {}
        self._depths: dict[str, int] = {}
        self._whole: set[int] = set()
        self._gone: set[int] = set()
        self._xml = 0

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Envelope]:
        """Iterate over the messages, lowest number first."""
        return (self._by[number] for number in self._numbers)

    def after(self, number: int) -> Iterator[Envelope]:
        """Iterate over those with a higher number, lowest first."""
        return (self._by[each] for each in self._numbers[bisect_right(self._numbers, number) :])

    def get(self, number: int) -> Envelope | None:
        """Return the message with that number."""
        return self._by.get(number)

    def span(self, frame: str) -> str:
        """Return the trace span of a frame; empty while it is not known."""
        return self._spans.get(frame, "")

    def depth(self, frame: str) -> int:
        """Return how many frames of the run are above a frame; 0 for the first, and for an unknown one."""
        return self._depths.get(frame, 0)

    def is_whole(self, number: int) -> bool:
        """Return whether its XML was read, as far as the fleet has it."""
        return number in self._whole or number in self._gone

    @property
    def last(self) -> int:
        """The highest number, 0 without any."""
        return self._numbers[-1] if self._numbers else 0

    def take(self, event: MessagePassed) -> None:
        """Take in a message that passed."""
        if event.span_id:
            self._spans[event.frame] = event.span_id
        known = self._by.get(event.number)
        if known is None:
            self._put(safe(Envelope(**{name: getattr(event, name) for name in _EVENT_KEYS})))
        elif known.outcome != event.outcome:  # it was delivered, and dropped before it was handled
            again = replace(known, outcome=event.outcome, code=event.code, detail=event.detail)
            self._put(safe(again))

    def merge(self, found: Sequence[Envelope], after: int = 0, upto: int = 0) -> None:
        """Take in messages read from the fleet, from a number on: with XML, and how long each took.

        ``upto`` is the highest number that was known at the request.
        """
        begin = found[0].number if found else upto + 1
        # Messages that the fleet no longer keeps are not requested again.
        self._gone.update(number for number in self._between(after, begin) if number not in self._whole)
        for each in found:
            letter = safe(each)
            known = self._by.get(letter.number)
            if letter.number in self._whole and known is not None:
                self._xml -= len(known.xml)
            if self._xml + len(letter.xml) > MAX_XML:
                self._lighten()
            self._whole.add(letter.number)
            self._xml += len(letter.xml)
            if known != letter:
                self._put(letter)

    def _between(self, after: int, before: int) -> list[int]:
        begin = bisect_right(self._numbers, after)
        return self._numbers[begin : bisect_left(self._numbers, before)]

    def unread(self) -> int:
        """Return the lowest number that lacks XML, or whose duration was not known."""
        for number in self._numbers:
            whole = number in self._whole and not pending(self._by[number])
            if not whole and number not in self._gone:
                return number
        return self.last + 1

    def lighten(self) -> None:
        """Drop the XML when the user no longer looks; it is read again when needed."""
        self._lighten()
        self.version += 1

    def _lighten(self) -> None:
        for number in self._whole:
            self._by[number] = replace(self._by[number], xml="")
        self._whole.clear()
        self._xml = 0

    def drop_oldest(self, number: int) -> None:
        """Drop the first ``number`` messages."""
        for each in self._numbers[:number]:
            gone = self._by.pop(each)
            self.refused -= gone.outcome != "delivered"
            if each in self._whole:
                self._whole.discard(each)
                self._xml -= len(gone.xml)
        self._gone.difference_update(self._numbers[:number])
        self.left_out += min(number, len(self._numbers))
        del self._numbers[:number]
        self.shuffled += 1
        self.version += 1

    def _put(self, letter: Envelope) -> None:
        before = self._by.get(letter.number)
        self._by[letter.number] = letter
        self.refused += (letter.outcome != "delivered") - (
            before is not None and before.outcome != "delivered"
        )
        self.shuffled += before is not None and before.outcome != letter.outcome
        if before is None:
            if letter.number > self.last:
                self._numbers.append(letter.number)
            else:
                insort(self._numbers, letter.number)
                self.shuffled += 1
        if letter.frame and letter.frame not in self._depths:
            above = self._depths.get(letter.parent)
            if above is not None:
                self._depths[letter.frame] = above + 1
            elif letter.route in ("call", "boot"):
                self._depths[letter.frame] = 0
        self.version += 1


def safe(letter: Envelope) -> Envelope:
    """Return the message with texts that are safe to show."""
    changed: dict[str, Any] = {}
    for name in _LINES:
        value = getattr(letter, name)
        if not (value.isascii() and value.isprintable() and len(value) <= _LINE):
            changed[name] = one_line(value, _LINE)
    if letter.detail:
        changed["detail"] = one_line(letter.detail, 2_000)
    if letter.xml:
        changed["xml"] = sanitize(letter.xml)
    return replace(letter, **changed) if changed else letter


def pending(letter: Envelope) -> bool:
    """Return whether an agent still works on it, or its duration is not known yet."""
    handled = letter.route in ("boot", "call", "self", "respond", "error")
    return handled and letter.outcome == "delivered" and letter.seconds is None


class MessageBook:
    """The messages of the last runs, at most ``MAX_RUNS`` of them with ``MAX_MESSAGES`` in all.

    ``absorb`` takes in events; ``read`` asks ``port`` for XML and times, page by page. ``version`` grows with
    every change.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        self._port = port
        self._runs: dict[str, RunEnvelopes] = {}
        self._count = 0
        self.version = 0

    def run(self, run_id: str) -> RunEnvelopes | None:
        """Return the messages of a run; None where none is known."""
        return self._runs.get(run_id)

    @property
    def runs(self) -> tuple[RunEnvelopes, ...]:
        """Return the runs with messages, oldest first."""
        return tuple(self._runs.values())

    def last_of(self, agent: str = "") -> RunEnvelopes | None:
        """Return the newest run with messages; with ``agent`` one in which it sent or received one."""
        for run in reversed(self._runs.values()):
            if not agent or run.agent == agent or any(agent in (each.sender, each.to) for each in run):
                return run
        return None

    def absorb(self, frame: FleetFrame) -> None:
        """Take in the messages that a frame reports."""
        for event in frame.events:
            if isinstance(event, MessagePassed):
                run = self._of(event.run_id, event.agent)
                before = len(run)
                run.take(event)
                self._count += len(run) - before
                self.version += 1
        if self._count > MAX_MESSAGES or len(self._runs) > MAX_RUNS:
            self._trim()

    async def read(self, run_id: str, agent: str, after: int) -> int:
        """Read one page of a run from a number on; return its highest number, 0 without any. Raises Fault."""
        fleet = self._port()
        if fleet is None:
            raise Fault(FaultType.TRANSPORT, "the fleet is not running")
        upto = run.last if (run := self._runs.get(run_id)) is not None else 0
        try:
            async with asyncio.timeout(DEADLINE):
                found: tuple[Envelope, ...] = await fleet.envelopes(run_id, after, PAGE)
        except TimeoutError:
            raise Fault(FaultType.TIMEOUT, f"no answer within {DEADLINE:.0f} s") from None
        if not found and run_id not in self._runs:
            return 0
        run = self._of(run_id, agent)
        before = len(run)
        run.merge(found, after, upto)
        self._count += len(run) - before
        self.version += 1
        if self._count > MAX_MESSAGES:
            self._trim(keep=run_id)
        return found[-1].number if found else 0

    def _of(self, run_id: str, agent: str) -> RunEnvelopes:
        if (run := self._runs.get(run_id)) is None:
            run = self._runs[run_id] = RunEnvelopes(run_id, one_line(agent, _LINE))
        return run

    def _trim(self, keep: str = "") -> None:
        for run_id in list(self._runs):
            over = self._count - MAX_MESSAGES
            if over <= 0 and len(self._runs) <= MAX_RUNS:
                break
            run = self._runs[run_id]
            if run_id == keep and len(self._runs) > 1:
                continue
            if len(self._runs) > 1:
                del self._runs[run_id]
                self._count -= len(run)
            else:
                before = len(run)
                run.drop_oldest(max(over, before // 10))
                self._count -= before - len(run)
        self.version += 1
