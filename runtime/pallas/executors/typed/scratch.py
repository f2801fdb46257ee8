"""Scratch storage: what a handler keeps for one frame while that lasts (HC-18)."""

import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import WeakValueDictionary

MAX_ENTRIES: Final = 1_000
"""Entries of one frame."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one frame, by ``sys.getsizeof``: the contents of containers are not counted."""


class Scratch(MutableMapping[str, Any]):
    """The storage of one frame. An entry that is too much raises ValueError and changes nothing."""

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def __getitem__(self, key: str) -> Any:
        return self._kept[key]

    def __setitem__(self, key: str, value: Any) -> None:
        size = sys.getsizeof(key, 64) + sys.getsizeof(value, 64)
        if key not in self._kept and len(self._kept) >= MAX_ENTRIES:
            raise ValueError(f"scratch storage holds {MAX_ENTRIES:,} entries; delete some")
        whole = self._size - self._sizes.get(key, 0) + size
        if whole > MAX_BYTES:
            raise ValueError(f"scratch storage holds {MAX_BYTES:,} bytes; delete some")
        self._size = whole
        self._kept[key], self._sizes[key] = value, size

    def __delitem__(self, key: str) -> None:
        del self._kept[key]
        self._size -= self._sizes.pop(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Scratches:
    """The storages of one agent, by frame; each is made when a handler first puts something in."""

    def __init__(self) -> None:
        self._frames: dict[str, Scratch] = {}
        self._lent: dict[str, set[_Lent]] = {}

    def __len__(self) -> int:
        return len(self._frames)

    @contextmanager
    def lent(self, frame: str) -> Iterator[MutableMapping[str, Any]]:
        """Lend the frame's storage to the handler of a message, for this block; later entries raise."""
        lent = _Lent(self._frames, frame)
        self._lent.setdefault(frame, set()).add(lent)
        try:
            yield lent
        finally:
            lent.is_closed = True
            if others := self._lent.get(frame):
                others.discard(lent)
                if not others:
                    del self._lent[frame]

    def drop(self, frame: str) -> None:
        """Drop the storage of a frame that is over; a handler that still runs cannot use it either."""
        self._frames.pop(frame, None)
        for lent in self._lent.pop(frame, ()):
            lent.is_closed = True


class _Lent(MutableMapping[str, Any]):
    """A frame's storage that is only made when something is put in: most handlers never use theirs."""

    __slots__ = ("_frame", "_frames", "is_closed")
    __hash__ = object.__hash__

    def __init__(self, frames: dict[str, Scratch], frame: str) -> None:
        self._frames = frames
        self._frame = frame
        self.is_closed = False

    def __getitem__(self, key: str) -> Any:
        return self._frames[self._frame][key] if self._frame in self._frames else _NOTHING[key]

    def __setitem__(self, key: str, value: Any) -> None:
        if self.is_closed:
            raise RuntimeError(
                "the message has been handled, and its conversation may be over: nothing is kept"
            )
        self._frames.setdefault(self._frame, Scratch())[key] = value

    def __delitem__(self, key: str) -> None:
        if self._frame not in self._frames:
            raise KeyError(key)
        del self._frames[self._frame][key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames.get(self._frame, ()))

    def __len__(self) -> int:
        return len(self._frames.get(self._frame, ()))


_NOTHING: Final[dict[str, Any]] = {}
_shared: Final[WeakValueDictionary[tuple[Path, str], Scratches]] = WeakValueDictionary()


def scratches_of(root: Path, agent: str) -> Scratches:
    """Return the storages of an agent; all versions of it share them, so that a reload loses nothing."""
    key = (root, agent)
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Scratches()
    return found
