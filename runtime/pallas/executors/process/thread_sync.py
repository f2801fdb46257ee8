"""Which messages of a conversation an agent's process has, so that a turn carries only the new ones.

The fleet's side says how many messages of a thread the process is to keep, and sends the rest. What the
process has beyond that is dropped with the next turn, so that a cancelled run leaves no trace.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pallas.model import Fault, FaultType, Message
from pallas.model.packed import Packed

from ..ipc.channel import MAX_FRAME, PART
from .agent_messages import HistoryMessage

# Threads that a process keeps, by number and by characters.
MAX_THREADS: Final = 1_000
MAX_SIZE: Final = 64 * 1024 * 1024


class SentThreads:
    """The fleet's side: which messages of which conversation the process has."""

    def __init__(self, max_threads: int = MAX_THREADS, max_size: int = MAX_SIZE) -> None:
        self._max_threads = max_threads
        self._max_size = max_size
        self._known: OrderedDict[str, tuple[Message, ...]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._busy: Counter[str] = Counter()

    def begin(self, lease: str | None, history: Sequence[Message]) -> int:
        """Begin a run of this conversation; return how many of its messages the process has already."""
        if lease is None:
            return 0
        self._busy[lease] += 1
        known = self._known.get(lease, ())
        keep = 0
        for ours, theirs in zip(history, known, strict=False):
            if ours is not theirs:
                break
            keep += 1
        if keep < len(known) or not known:
            self._put(lease, known[:keep], sum(map(_size, known[:keep])))
        self._known.move_to_end(lease)
        return keep

    def end(
        self,
        lease: str | None,
        history: Sequence[Message],
        messages: Sequence[Message] | None,
        *,
        replaces: bool,
    ) -> list[str]:
        """End a run that continued ``history`` and added ``messages``, which is None for a run that failed.

        Returns the conversations whose threads the process need not keep any more.
        """
        if lease is None:
            return []
        self._busy[lease] -= 1
        if not self._busy[lease]:
            del self._busy[lease]
        if messages is not None and lease in self._known:
            keep = len(self._known[lease])
            new = messages if replaces else (*history[keep:], *messages)
            before = () if replaces else self._known[lease]
            size = 0 if replaces else self._sizes[lease]
            self._put(lease, (*before, *new), size + sum(map(_size, new)))
        return list(self._too_many())

    def forget(self, lease: str) -> None:
        """Forget a conversation that is over."""
        self._known.pop(lease, None)
        self._size -= self._sizes.pop(lease, 0)

    def _put(self, lease: str, messages: tuple[Message, ...], size: int) -> None:
        self._size += size - self._sizes.get(lease, 0)
        self._known[lease] = messages
        self._sizes[lease] = size

    def _too_many(self) -> Iterator[str]:
        for lease in list(self._known):
            if self._size <= self._max_size and len(self._known) <= self._max_threads:
                return
            if lease not in self._busy:
                self.forget(lease)
                yield lease


class ReceivedThreads[T]:
    """The process's side: the messages of each conversation, in the form that is used there."""

    def __init__(self) -> None:
        self._known: dict[str, list[T]] = {}
        self._owner: dict[str, int] = {}

    def begin(self, call: int, lease: str | None, keep: int, given: Sequence[T]) -> list[T]:
        """Return the thread that a run continues: ``keep`` of the known messages, and ``given``."""
        if lease is None:
            return list(given)
        thread = self._known.setdefault(lease, [])
        del thread[keep:]
        thread += given
        self._owner[lease] = call
        return list(thread)

    def end(self, call: int, lease: str | None, messages: Sequence[T], *, replaces: bool) -> None:
        """Add what a run made to its thread, or replace it; ignored once another run continues the thread."""
        if lease is None or self._owner.get(lease) != call:
            return
        thread = self._known[lease]
        if replaces:
            thread.clear()
        thread += messages

    def forget(self, lease: str) -> None:
        """Forget the messages of a conversation."""
        self._known.pop(lease, None)
        self._owner.pop(lease, None)


def message_parts(messages: Iterable[Message], *, complete: bool) -> Iterator[tuple[HistoryMessage, ...]]:
    """Yield messages as they travel, in parts that fit a frame; ``complete`` as in ``HistoryMessage.of``.

    Raises Fault (UPSTREAM) for a message that fits no frame.
    """
    part: list[HistoryMessage] = []
    filled = 0
    for message in messages:
        entry = HistoryMessage.of(message, complete=complete)
        size = _wire_size(entry)
        if size > MAX_FRAME // 2:
            raise Fault(
                FaultType.UPSTREAM,
                f"a message of {size} characters in this conversation is too large for an agent in a "
                "process of its own; begin another conversation",
            )
        if part and filled + size > PART:
            yield tuple(part)
            part, filled = [], 0
        part.append(entry)
        filled += size
    if part:
        yield tuple(part)


def _size(message: Message) -> int:
    native = message.native
    return message.size + (len(native.json) if isinstance(native, Packed) else 0)


def _wire_size(entry: HistoryMessage) -> int:
    answers = sum(len(answer.text) for answer in entry.answers)
    images = sum(len(image.data) for image in entry.images)
    return len(entry.text) + len(entry.native or "") + answers + images
