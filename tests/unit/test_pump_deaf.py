"""Whoever hears the events of a run fails, at any of them: the run ends, and nothing of it is left."""

import asyncio
import logging
import warnings
from contextlib import suppress
from typing import Any

import pytest
from support.pumped import SECONDS, Answer, Ask, Handler, World, echo, forever, respond

from pallas.contract import HandlerMetadata

EVENTS = 30
"""More than a run of ``world`` has."""


class Deaf(list[Any]):
    """Takes all events but one, or none after that."""

    def __init__(self, at: int, *, for_good: bool) -> None:
        super().__init__()
        self._at = at
        self._for_good = for_good

    def append(self, event: Any) -> None:
        super().append(event)
        if len(self) == self._at or (self._for_good and len(self) > self._at):
            raise RuntimeError("deaf")


def world() -> World:
    """Frames that work, that wait, that have todos and messages in their queues when the run ends."""

    async def asks(payload: Any, metadata: HandlerMetadata) -> Any:
        if isinstance(payload, Answer):
            return respond("done")
        if metadata.from_id == "system.caller":
            asked = b"<holds.ask/><echo.ask/><asks.ask/>"
            return asked + b"<system.todo.todountil><wait_for>Ask</wait_for></system.todo.todountil>"
        return None

    async def holds(payload: Any, metadata: HandlerMetadata) -> Any:
        if metadata.is_self_call:
            await asyncio.Event().wait()
        return b"<holds.ask/><holds.ask/><forever.ask/><nobody.ask/>"

    async def slowly(payload: Any, metadata: HandlerMetadata) -> Any:
        for _ in range(6):
            await asyncio.sleep(0)
        return await echo(payload, metadata)

    return World(
        Handler("asks", asks, peers=["holds", "echo"], agent=True),
        Handler("holds", holds, peers=["forever"]),
        Handler("forever", forever),
        Handler("echo", slowly),
    )


@pytest.mark.parametrize("for_good", [False, True])
async def test_a_run_ends_whole_at_whichever_event_nobody_hears(
    for_good: bool, caplog: pytest.LogCaptureFixture
) -> None:
    heard = 0
    for at in range(1, EVENTS):
        made = world()
        made.events = Deaf(at, for_good=for_good)
        with warnings.catch_warnings(), caplog.at_level(logging.CRITICAL), suppress(Exception):
            warnings.simplefilter("ignore", DeprecationWarning)
            async with asyncio.timeout(SECONDS):
                await made.raw("asks", Ask())
        heard = len(made.events)
        assert made.clean(), at
        assert made.pump._state.queued == 0, at
        left = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
        assert left == [], at
    assert 20 < heard < EVENTS
