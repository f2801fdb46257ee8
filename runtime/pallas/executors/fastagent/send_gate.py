"""Asks once more whether a run is still this fleet's, when one of its calls leaves the process.

A process may be stopped between the question before a call and the moment in which its request is written.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from ..base import TurnJournal

RECHECK_SECONDS: Final = 0.1
"""Seconds for which an answer holds."""


class _Gate:
    __slots__ = ("_journal", "_passed_at")

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._passed_at = _now()

    @property
    def is_old(self) -> bool:
        return _now() - self._passed_at > RECHECK_SECONDS

    async def pass_again(self) -> None:
        await self._journal.still_ours()
        self._passed_at = _now()


_gate: ContextVar[_Gate | None] = ContextVar("pallas_send_gate", default=None)


@contextmanager
def gating(journal: TurnJournal) -> Iterator[None]:
    """Have the call that is made in this block checked again when it is sent. It was checked just now."""
    token = _gate.set(_Gate(journal))
    try:
        yield
    finally:
        _gate.reset(token)


def is_due() -> bool:
    """Whether the call of this context has to be checked again before it is sent."""
    gate = _gate.get()
    return gate is not None and gate.is_old


async def check() -> None:
    """Return if the run of this context is still this fleet's; else as ``TurnJournal.still_ours``."""
    if (gate := _gate.get()) is not None:
        await gate.pass_again()


def _now() -> float:
    """Seconds that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
