"""The questions of a fleet to people: which are open, and those that were answered; no screen."""

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Any, Final, Literal

from pallas.model import FleetState, Page, QuestionAnswered, QuestionAsked, ThreadRecord
from pallas.model.questions import Question
from pallas.safe_text import one_line, sanitize

from ..frame import FleetFrame
from .question_text import answerer_of, as_answered, outcome_of
from .record_pages import PAGE, ListedRecord, RecordPages

MAX_TEXT: Final = 20_000
"""Characters of the arguments or the message that are shown."""
READ_EVERY: Final = 10.0
"""Seconds between two reads of the open ones: another replica's questions come with no event."""
_MOVED: Final = 1_000
"""Answers that are remembered, for what was read before them."""

Action = Literal["accept", "decline", "cancel"]


class QuestionBook(RecordPages[Question]):
    """The questions that were read so far: the open ones first, then the others, the newest first.

    ``open`` are the open ones, also while the list is not looked at; ``open_version`` changes with them.
    ``absorb`` takes what events tell of them, ``read_open`` reads the rest.
    """

    def __init__(self, port: Callable[[], Any]) -> None:
        super().__init__(port)
        self.stale = True
        self.open_version = 0
        self._open: dict[str, Question | None] = {}
        self._moved: dict[str, QuestionAnswered] = {}
        self._reading = False
        self._read_at = float("-inf")
        self._is_unread = True

    # The open ones

    @property
    def open(self) -> list[Question]:
        """The open questions whose text may be read, the oldest first."""
        return sorted((each for each in self._open.values() if each), key=lambda each: each.asked_at)

    @property
    def waiting(self) -> int:
        """How many are open, also those whose text may not be read."""
        return len(self._open)

    @property
    def ended(self) -> Container[str]:
        """The ids of questions that events said are over."""
        return self._moved

    def absorb(self, frame: FleetFrame) -> None:
        """Take in what a frame tells of questions."""
        if frame.dropped:
            self.stale = self._is_unread = True
        for event in frame.events:
            if isinstance(event, QuestionAsked):
                self.stale = self._is_unread = True
                self._open.setdefault(event.question, None)
                self.open_version += 1
            elif isinstance(event, QuestionAnswered):
                self.stale = True
                self._open.pop(event.question, None)
                self.open_version += 1
                self._moved[event.question] = event
                while len(self._moved) > _MOVED:
                    del self._moved[next(iter(self._moved))]

    def due(self, frame: FleetFrame) -> bool:
        """Whether the open ones should be read now."""
        if self._reading or frame.snapshot.state is not FleetState.RUNNING or frame.snapshot.stale:
            return False
        return self._is_unread or frame.now - self._read_at >= READ_EVERY or frame.now < self._read_at

    async def read_open(self, now: float) -> None:
        """Read the open questions, as often as events tell of new ones meanwhile. Raises Fault.

        ``now`` in Unix seconds; a failed read is tried again after ``READ_EVERY``.
        """
        self._reading, self._read_at = True, now
        try:
            while True:
                self._is_unread = False
                self._take_open((await self.fleet().questions("open", PAGE)).items)
                if not self._is_unread:
                    return
        finally:
            self._reading = self._is_unread = False

    def _take_open(self, found: tuple[Question, ...]) -> None:
        known = {each.id: safe(each) for each in found if each.id not in self._moved}
        told = {id for id, each in self._open.items() if each is None and self._is_unread}  # noqa: A001
        new: dict[str, Question | None] = {**known, **dict.fromkeys(told - known.keys())}
        if new != self._open:
            self._open = new
            self.open_version += 1

    # The list

    async def page(self, start: str) -> Page[Question]:
        fleet = self.fleet()
        if start:
            return await fleet.questions("", PAGE, start)
        waiting = (await fleet.questions("open", PAGE)).items
        rest = await fleet.questions("", PAGE)
        ids = {each.id for each in waiting}
        over = (each for each in rest.items if each.id not in ids and each.state != "open")
        self._take_open(waiting)
        return Page((*sorted(waiting, key=lambda each: each.asked_at), *over), rest.next)

    def line_of(self, record: Question) -> ListedRecord[Question]:
        return listed_of(record)

    async def refresh(self) -> None:
        """Read the first page again; records read further down stay below it, as events report them."""
        self.stale = False
        await self._refresh(self._as_told)

    def _as_told(self, listed: ListedRecord[Question]) -> ListedRecord[Question]:
        event, record = self._moved.get(listed.record.id), listed.record
        if event is None or record.state != "open":
            return listed
        return listed_of(as_answered(record, event))

    async def answer(
        self,
        question: Question,
        action: Action,
        *,
        always: bool = False,
        content: dict[str, Any] | None = None,
    ) -> Question:
        """Answer one; it is listed as it is then. Raises Fault."""
        record = safe(await self.fleet().answer_question(question.id, action, always, content))
        self.put(record)
        self._open.pop(record.id, None)
        self.open_version += 1
        self.stale = True
        return record

    async def thread(self, record: Question) -> ThreadRecord:
        """The durable thread of its outermost run. Raises Fault."""
        return await self.fleet().thread(record.agents[0], record.thread)


def safe(record: Question) -> Question:
    """A question whose texts can be shown."""
    return replace(
        record,
        agent=one_line(record.agent, 100),
        path=tuple(one_line(each, 100) for each in record.path[:50]),
        owner=one_line(record.owner, 100),
        tool=one_line(record.tool, 200),
        server=one_line(record.server, 100),
        message=sanitize(record.message, MAX_TEXT),
        arguments=sanitize(record.arguments, MAX_TEXT),
        answered_by=one_line(record.answered_by, 100),
    )


def listed_of(record: Question) -> ListedRecord[Question]:
    """A line of the list."""
    record = safe(record)
    words = (record.tool, record.server, record.agent, *record.path, record.message[:500])
    more = (record.arguments[:2_000], outcome_of(record), answerer_of(record), record.owner, record.run_id)
    return ListedRecord(record, " ".join((*words, *more)).lower())
