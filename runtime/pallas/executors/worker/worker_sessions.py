"""The sessions of a worker, one for each conversation."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pallas.model import Message


@dataclass(slots=True, eq=False)
class WorkerSession:
    """A session of the worker."""

    lease: str | None
    id: str = ""
    """Empty until the worker has opened it."""
    known_marks: tuple[int, ...] = ()
    """Marks of the messages that it knows."""
    loose: bool = False
    """It got a turn that may not have become part of the conversation."""
    gone: bool = False
    """It was dropped and is not used any more."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it answers: one prompt at a time."""

    def knows(self, history: Sequence[Message]) -> bool:
        """Return whether its messages are those of a conversation with that history."""
        marks = marks_of(history)
        if self.loose:
            return marks[: len(self.known_marks)] == self.known_marks
        # The older part of a long conversation may have been dropped.
        return marks == (self.known_marks[-len(marks) :] if marks else self.known_marks)

    def remember(self, history: Sequence[Message], new: Sequence[Message]) -> None:
        """Add the messages of a turn that is over."""
        self.known_marks = marks_of(history) + marks_of(new)
        self.loose = False


class WorkerSessions:
    """Sessions by lease, ``most`` of them: one more closes the one that was idle longest.

    ``close`` closes a session of the worker.
    """

    def __init__(self, most: int, close: Callable[[str], None]) -> None:
        self._most = most
        self._close = close
        self._sessions: OrderedDict[str, WorkerSession] = OrderedDict()
        self._leases: dict[str, str] = {}
        self._opened: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def of(self, lease: str | None) -> WorkerSession:
        """Return the session of that lease; a new one for None, or if there is none."""
        if lease is None:
            return WorkerSession(None)
        session = self._sessions.get(lease)
        if session is None:
            session = self._sessions[lease] = WorkerSession(lease)
            if len(self._sessions) > self._most:
                idle = (
                    each for each in self._sessions.values() if not each.lock.locked() and each is not session
                )
                if (oldest := next(idle, None)) is not None:
                    self.drop(oldest)
        self._sessions.move_to_end(lease)
        return session

    def release(self, lease: str) -> None:
        """Drop the session of a conversation that is over; one that still answers is closed afterwards."""
        session = self._sessions.get(lease)
        if session is not None:
            self.drop(session)

    def belongs(self, lease: str, session: str) -> None:
        """Note the conversation of a fleet's session, so that ``close`` finds it."""
        self._leases[session] = lease
        while len(self._leases) > 2 * self._most:
            del self._leases[next(iter(self._leases))]

    def opened(self, session: str, id: str) -> None:  # noqa: A002 - as the protocol calls it
        """Keep the worker's session ``id`` for a fleet's session that has had no turn yet."""
        self._opened[session] = id
        if len(self._opened) > self._most:
            self._close(self._opened.popitem(last=False)[1])

    def take_opened(self, session: str) -> str:
        """Return and forget the worker's session that was opened for that one; empty if there is none."""
        return self._opened.pop(session, "")

    def close(self, session: str) -> None:
        """End a fleet's session, and drop the worker's session of its conversation."""
        if id := self.take_opened(session):  # noqa: A001 - as the protocol calls it
            self._close(id)
        if (lease := self._leases.pop(session, None)) is not None:
            self.release(lease)

    def drop(self, session: WorkerSession) -> None:
        """Drop a session; the next turn of its conversation gets a new one."""
        if session.lease is not None and self._sessions.get(session.lease) is session:
            del self._sessions[session.lease]
        session.gone = True
        if not session.lock.locked():
            self.free(session)

    def free(self, session: WorkerSession) -> None:
        """Close a session that answers no turn now, if it was dropped or has no conversation."""
        if session.id and (session.gone or session.lease is None):
            self._close(session.id)
            session.id = ""


def marks_of(messages: Sequence[Message]) -> tuple[int, ...]:
    """Return a mark for each message, which differs between messages within this process."""
    return tuple(hash((message.role, message.text)) for message in messages)
