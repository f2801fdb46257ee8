"""What a process of an isolated handler was asked and has not answered yet: by number, each answered once."""

import asyncio
from dataclasses import dataclass
from typing import Any

from pallas.model import Fault
from pallas.model.codec import Undecodable

from .isolated_asks import Asks


class Gone(Exception):
    """The process ended before it answered: ``fault`` is what to say of it.

    ``again``: it had not begun with this message, and the fleet itself had ended it, so another may.
    """

    def __init__(self, fault: Fault, *, again: bool) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.again = again


@dataclass(slots=True, eq=False)
class Open:
    """One of them, answered by one of ``kinds``. ``begun``: the handler was called; ``asks`` are the models
    that it asks."""

    answer: asyncio.Future[Any]
    kinds: tuple[type, ...]
    asks: Asks | None = None
    begun: bool = False


class Calls:
    """All of one process."""

    def __init__(self) -> None:
        self.given = 0
        """How many there were."""
        self._open: dict[int, Open] = {}
        self._busy = asyncio.Event()

    @property
    def open(self) -> tuple[Open, ...]:
        """Those that are not forgotten yet."""
        return tuple(self._open.values())

    async def busy(self) -> None:
        """Wait until there are some."""
        await self._busy.wait()

    def add(self, *kinds: type) -> tuple[int, Open]:
        """A new one, to be answered by one of these, and its number."""
        self.given = call = self.given + 1
        opened = self._open[call] = Open(asyncio.get_running_loop().create_future(), kinds)
        opened.answer.add_done_callback(_retrieved)
        self._busy.set()
        return call, opened

    def forget(self, call: int) -> None:
        """Nobody waits for it any more, and the process has nothing to say of it any more."""
        self._open.pop(call, None)
        if not self._open:
            self._busy.clear()

    def of(self, call: int) -> Open:
        """One that is to be answered. Raises Undecodable for what was not asked, or is answered."""
        opened = self._open.get(call)
        if opened is None or opened.answer.done():
            raise Undecodable("it answers what it was not asked")
        return opened

    def answer(self, call: int, said: Any) -> None:
        """Its answer. Raises Undecodable."""
        opened = self.of(call)
        if not isinstance(said, opened.kinds):
            raise Undecodable("it answers something else than what it was asked")
        opened.answer.set_result(said)

    def drop(self, call: int, ask: int) -> None:
        """A model that nobody waits for; what comes too late for that is nothing."""
        if (opened := self._open.get(call)) is not None and opened.asks is not None:
            opened.asks.drop(ask)

    def fail(self, fault: Fault, *, again: bool) -> None:
        """The process is gone. ``again``: what had not begun may go to another one."""
        for opened in self.open:
            if opened.asks is not None:
                opened.asks.close()
            if not opened.answer.done():
                opened.answer.set_exception(Gone(fault, again=again and not opened.begun))


def _retrieved(future: asyncio.Future[Any]) -> None:
    """Nobody may be waiting for it any more, and that is no news."""
    if not future.cancelled():
        future.exception()
