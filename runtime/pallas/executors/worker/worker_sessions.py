"""The worker's sessions, one for each conversation that has one."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pallas.model import Message


@dataclass(slots=True, eq=False)
class WorkerSession:
    """A session of the worker's; ``id`` is empty until it has one.

    ``said`` are the marks of what it knows. ``loose`` says that it heard a turn which may not have become
    part of the conversation. ``lock`` is held while it answers: one prompt at a time. ``gone`` when it is
    let go of: it is not used any more.
    """

    lease: str | None
    id: str = ""
    said: tuple[int, ...] = ()
    loose: bool = False
    gone: bool = False
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def knows(self, history: Sequence[Message]) -> bool:
        """Whether a conversation with that history is what was said in here."""
        marks = marks_of(history)
        if self.loose:
            return marks[: len(self.said)] == self.said
        # Of a long conversation its older part may be gone by now.
        return marks == (self.said[-len(marks) :] if marks else self.said)

    def heard(self, history: Sequence[Message], new: Sequence[Message]) -> None:
        """A turn is over, and these messages are what it adds."""
        self.said = marks_of(history) + marks_of(new)
        self.loose = False


class WorkerSessions:
    """Sessions by lease, ``most`` of them: beyond, the one that was idle longest is closed.

    ``close`` ends a session of the worker's.
    """

    def __init__(self, most: int, close: Callable[[str], None]) -> None:
        self._most = most
        self._close = close
        self._kept: OrderedDict[str, WorkerSession] = OrderedDict()
        self._leases: dict[str, str] = {}
        self._opened: OrderedDict[str, str] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, lease: str | None) -> WorkerSession:
        """The one of that lease; a new one for None, or where there is none."""
        if lease is None:
            return WorkerSession(None)
        kept = self._kept.get(lease)
        if kept is None:
            kept = self._kept[lease] = WorkerSession(lease)
            if len(self._kept) > self._most:
                idle = (each for each in self._kept.values() if not each.lock.locked() and each is not kept)
                if (oldest := next(idle, None)) is not None:
                    self.drop(oldest)
        self._kept.move_to_end(lease)
        return kept

    def release(self, lease: str) -> None:
        """The conversation is over; a session that still answers is closed when it has."""
        kept = self._kept.get(lease)
        if kept is not None:
            self.drop(kept)

    def belongs(self, lease: str, session: str) -> None:
        """That conversation is the one of a session, which may be closed by its own name."""
        self._leases[session] = lease
        while len(self._leases) > 2 * self._most:
            del self._leases[next(iter(self._leases))]

    def opened(self, session: str, id: str) -> None:  # noqa: A002 - as the protocol calls it
        """The worker's session ``id`` was opened for a session that has had no turn yet."""
        self._opened[session] = id
        if len(self._opened) > self._most:
            self._close(self._opened.popitem(last=False)[1])

    def take_opened(self, session: str) -> str:
        """The worker's session that was opened for that one, once; empty where there is none."""
        return self._opened.pop(session, "")

    def close(self, session: str) -> None:
        """A session is over, and with it what is kept for its conversation."""
        if id := self.take_opened(session):  # noqa: A001 - as the protocol calls it
            self._close(id)
        if (lease := self._leases.pop(session, None)) is not None:
            self.release(lease)

    def drop(self, kept: WorkerSession) -> None:
        """Let go of it: whoever comes next gets a new one."""
        if kept.lease is not None and self._kept.get(kept.lease) is kept:
            del self._kept[kept.lease]
        kept.gone = True
        if not kept.lock.locked():
            self.free(kept)

    def free(self, kept: WorkerSession) -> None:
        """It answers nobody now: close it where it is not wanted any more."""
        if kept.id and (kept.gone or kept.lease is None):
            self._close(kept.id)
            kept.id = ""


def marks_of(messages: Sequence[Message]) -> tuple[int, ...]:
    """What tells one message from another, in this process."""
    return tuple(hash((message.role, message.text)) for message in messages)
