"""By which handle the other side knows each of our conversations, and how much of it."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from pallas.model import Message

KEEP: Final = 10_000
MAX_HANDLE: Final = 500


class _Known(NamedTuple):
    handle: str
    messages: int


class Handles:
    """Handles by lease; the longest unused are forgotten first. Each opens a conversation: never shown."""

    def __init__(self, keep: int = KEEP) -> None:
        self._keep = keep
        self._all: OrderedDict[str, _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def of(self, lease: str | None, history: Sequence[Message]) -> str:
        """The handle under which the other side knows just this history; empty when there is none.

        What was said without it (a thread that was edited, or made shorter) it has to be told anew.
        """
        known = self._all.get(lease) if lease is not None else None
        if lease is None or known is None:
            return ""
        if known.messages != len(history):
            del self._all[lease]
            return ""
        self._all.move_to_end(lease)
        return known.handle

    def keep(self, lease: str | None, handle: str, messages: int) -> None:
        """From now on the other side knows so many messages of the conversation by that handle."""
        if lease is None or not handle or len(handle) > MAX_HANDLE:
            return
        self._all[lease] = _Known(handle, messages)
        self._all.move_to_end(lease)
        while len(self._all) > self._keep:
            self._all.popitem(last=False)

    def forget(self, lease: str | None) -> None:
        """It is over, or nobody knows what the other side knows of it."""
        if lease is not None:
            self._all.pop(lease, None)

    def clear(self) -> None:
        """The other side may have been restarted."""
        self._all.clear()
