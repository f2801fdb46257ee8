"""What a process knows of conversations, so that a turn carries only what is new.

Both ends keep the same book: the fleet's says how much of a thread to keep and gives the rest. What the
process has beyond that is dropped with the next turn, so that a run which was cancelled leaves no trace.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pallas.model import Fault, FaultType, Message
from pallas.model.packed import Packed

from .channel import MAX_FRAME, PART
from .messages import Piece

# Conversations that a process keeps threads of, by number and by characters.
MAX_THREADS: Final = 1_000
MAX_SIZE: Final = 64 * 1024 * 1024


class Book:
    """The fleet's book: which messages of which conversation the process has."""

    def __init__(self, max_threads: int = MAX_THREADS, max_size: int = MAX_SIZE) -> None:
        self._max_threads = max_threads
        self._max_size = max_size
        self._known: OrderedDict[str, tuple[Message, ...]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._size = 0
        self._busy: Counter[str] = Counter()

    def begin(self, lease: str | None, history: Sequence[Message]) -> int:
        """A run in this conversation begins: how many of its messages the process has already."""
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
            self._put(lease, known[:keep], sum(map(_weight, known[:keep])))
        self._known.move_to_end(lease)
        return keep

    def end(
        self, lease: str | None, history: Sequence[Message], made: Sequence[Message] | None, *, replaces: bool
    ) -> list[str]:
        """The run about ``history`` is over and ``made`` these messages; None where nothing came of it.

        Returns the conversations whose threads the process need not know any more.
        """
        if lease is None:
            return []
        self._busy[lease] -= 1
        if not self._busy[lease]:
            del self._busy[lease]
        if made is not None and lease in self._known:
            keep = len(self._known[lease])
            new = made if replaces else (*history[keep:], *made)
            before = () if replaces else self._known[lease]
            weight = 0 if replaces else self._sizes[lease]
            self._put(lease, (*before, *new), weight + sum(map(_weight, new)))
        return list(self._too_many())

    def forget(self, lease: str) -> None:
        """The conversation is over."""
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


class Threads[T]:
    """The process's book: the messages of each conversation, in the form that is used."""

    def __init__(self) -> None:
        self._known: dict[str, list[T]] = {}
        self._owner: dict[str, int] = {}

    def begin(self, call: int, lease: str | None, keep: int, given: Sequence[T]) -> list[T]:
        """The thread that a run is about; of what is known ``keep`` messages stay."""
        if lease is None:
            return list(given)
        thread = self._known.setdefault(lease, [])
        del thread[keep:]
        thread += given
        self._owner[lease] = call
        return list(thread)

    def end(self, call: int, lease: str | None, made: Sequence[T], *, replaces: bool) -> None:
        """What a run adds to its thread, or puts in its place; nothing once another run is about it."""
        if lease is None or self._owner.get(lease) != call:
            return
        thread = self._known[lease]
        if replaces:
            thread.clear()
        thread += made

    def forget(self, lease: str) -> None:
        """The conversation need not be known any more."""
        self._known.pop(lease, None)
        self._owner.pop(lease, None)


def pieces(messages: Iterable[Message], *, whole: bool) -> Iterator[tuple[Piece, ...]]:
    """Messages as they travel, in parts that fit a frame; ``whole`` with the texts beside the native form.

    Raises Fault (UPSTREAM) for a message that fits none.
    """
    part: list[Piece] = []
    filled = 0
    for message in messages:
        piece = Piece.of(message, whole=whole)
        size = _size(piece)
        if size > MAX_FRAME // 2:
            raise Fault(
                FaultType.UPSTREAM,
                f"a message of {size} characters in this conversation is too large for an agent in a "
                "process of its own; begin another conversation",
            )
        if part and filled + size > PART:
            yield tuple(part)
            part, filled = [], 0
        part.append(piece)
        filled += size
    if part:
        yield tuple(part)


def _weight(message: Message) -> int:
    native = message.native
    return message.size + (len(native.json) if isinstance(native, Packed) else 0)


def _size(piece: Piece) -> int:
    answers = sum(len(answer.text) for answer in piece.answers)
    images = sum(len(image.data) for image in piece.images)
    return len(piece.text) + len(piece.native or "") + answers + images
