"""How questions and the audit log are stored, and the store of a fleet without a ledger."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple, Protocol

from pallas.ledger.page_cursor import check_limit, cursor_of, place_of
from pallas.model import Page
from pallas.model.questions import BY_DEADLINE, AuditRecord, Question, QuestionState

MAX_IN_MEMORY: Final = 10_000
"""Most questions, and entries of the audit log, that are kept in memory; the oldest ones go first, and
questions that are over before those that are open."""


class CallOfRun(NamedTuple):
    """One call of a run: ``part`` is the index of its message in the thread."""

    run_id: str
    part: int
    call_id: str
    digest: str


class QuestionRecords(Protocol):
    """The stored questions of a fleet. Every method raises Fault (TRANSPORT, TIMEOUT) if a database fails."""

    is_shared: bool
    """Whether other fleets may answer."""

    async def add(self, question: Question, audit: AuditRecord) -> None:
        """Store a new question."""
        ...

    async def get(self, id: str) -> Question | None:  # noqa: A002 - the word of the record
        """The question of that id."""
        ...

    async def of_call(self, call: CallOfRun) -> Question | None:
        """The last approval that was asked for that call."""
        ...

    async def standing(self, question: Question) -> Question | None:
        """An answer ``always`` that holds for this question: of its owner, agent, tool and thread."""
        ...

    async def end(self, ended: Question, audit: AuditRecord) -> bool:
        """Store how a question ended; False if it is not open any more, and then nothing is written."""
        ...

    async def use(self, id: str, audit: AuditRecord) -> bool:  # noqa: A002 - as above
        """Mark an accepted approval as used; False if it was used before, and then nothing is written."""
        ...

    async def ended(self, ids: Collection[str]) -> Sequence[Question]:
        """Those of the questions that are not open any more."""
        ...

    async def list(
        self,
        *,
        owner: str | None = None,
        state: QuestionState | None = "open",
        run_id: str = "",
        thread: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Question]:
        """Questions, newest first; ``run_id`` is the run that waits, or the root of its tree."""
        ...

    async def note(self, audit: AuditRecord) -> None:
        """Append to the audit log."""
        ...

    async def audit(
        self, *, who: str = "", run: str = "", tool: str = "", limit: int = 50, cursor: str = ""
    ) -> Page[AuditRecord]:
        """Entries of the audit log, newest first."""
        ...

    async def root_of(self, run_id: str) -> tuple[str, str, str]:
        """The outermost run above this one, its thread and its owner; empty where it is not known."""
        ...

    async def expire(self, now: float) -> None:
        """End the questions whose time is over and that no run ended, because it died."""
        ...


class MemoryRecords:
    """The questions of a fleet without a ledger, of which it keeps the last ``MAX_IN_MEMORY``."""

    is_shared = False

    def __init__(self) -> None:
        self._questions: dict[str, Question] = {}
        self._audit: deque[AuditRecord] = deque(maxlen=MAX_IN_MEMORY)
        self._count = 0

    async def add(self, question: Question, audit: AuditRecord) -> None:
        """As ``QuestionRecords``, like the other methods."""
        if len(self._questions) >= MAX_IN_MEMORY:
            ended = (each.id for each in self._questions.values() if not each.is_open)
            del self._questions[next(ended, next(iter(self._questions)))]
        self._questions[question.id] = question
        await self.note(audit)

    async def get(self, id: str) -> Question | None:  # noqa: A002
        return self._questions.get(id)

    async def of_call(self, call: CallOfRun) -> Question | None:
        return self._last(
            lambda each: (
                each.kind == "approval"
                and CallOfRun(each.run_id, each.part, each.call_id, each.digest) == call
            )
        )

    async def standing(self, question: Question) -> Question | None:
        return self._last(
            lambda each: each.always and each.is_accepted and scope_of(each) == scope_of(question)
        )

    async def end(self, ended: Question, audit: AuditRecord) -> bool:
        known = self._questions.get(ended.id)
        if known is None or not known.is_open:
            return False
        self._questions[ended.id] = ended
        await self.note(audit)
        return True

    async def use(self, id: str, audit: AuditRecord) -> bool:  # noqa: A002
        known = self._questions.get(id)
        if known is None or known.used or not known.is_accepted:
            return False
        self._questions[id] = replace(known, used=True)
        await self.note(audit)
        return True

    async def ended(self, ids: Collection[str]) -> Sequence[Question]:
        return [found for each in ids if (found := self._questions.get(each)) and not found.is_open]

    async def list(
        self,
        *,
        owner: str | None = None,
        state: QuestionState | None = "open",
        run_id: str = "",
        thread: str = "",
        limit: int = 50,
        cursor: str = "",
    ) -> Page[Question]:
        check_limit(limit)
        place = place_of(cursor, "questions", float)
        fitting = (
            each
            for each in reversed(self._questions.values())
            if (owner is None or each.owner == owner)
            and state in (None, each.state)
            and run_id in ("", each.run_id, each.root)
            and thread in ("", each.thread)
            and (place is None or (each.asked_at, each.id) < place)
        )
        found = tuple(islice(fitting, limit + 1))
        more = len(found) > limit
        found = found[:limit]
        return Page(found, cursor_of("questions", found[-1].asked_at, found[-1].id) if more else "")

    async def note(self, audit: AuditRecord) -> None:
        self._count += 1
        self._audit.append(replace(audit, id=self._count))

    async def audit(
        self, *, who: str = "", run: str = "", tool: str = "", limit: int = 50, cursor: str = ""
    ) -> Page[AuditRecord]:
        check_limit(limit)
        place = place_of(cursor, "audit", int)
        fitting = (
            each
            for each in reversed(self._audit)
            if who in ("", each.who)
            and run in ("", each.run)
            and tool in ("", each.tool)
            and (place is None or each.id < place[0])
        )
        found = tuple(islice(fitting, limit + 1))
        more = len(found) > limit
        found = found[:limit]
        return Page(found, cursor_of("audit", found[-1].id, "") if more else "")

    async def root_of(self, run_id: str) -> tuple[str, str, str]:
        return run_id, "", ""

    async def expire(self, now: float) -> None:
        for each in tuple(self._questions.values()):
            if each.is_open and each.expires_at <= now:
                over = replace(each, state="expired", answered_by=BY_DEADLINE, answered_at=now)
                self._questions[each.id] = over

    def _last(self, fits: Callable[[Question], bool]) -> Question | None:
        return next((each for each in reversed(self._questions.values()) if fits(each)), None)


def scope_of(question: Question) -> tuple[str, ...]:
    """What an answer ``always`` is bound to: owner, thread (or run, without one), agent and tool."""
    where = ("thread", question.thread) if question.thread else ("run", question.root)
    return question.owner, *where, question.agent, question.tool
