"""A run that is cancelled before its process has begun with it: said at once, for somebody waits for that."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest_asyncio

from pallas.executors.process.channel import Channel
from pallas.executors.process.inside import _Inside
from pallas.executors.process.messages import Cancel, Failed, Run, unpacked

Ends = tuple[_Inside, Channel]


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[Ends]:
    """What goes on in the process, and the fleet's end of its channel."""
    ours, theirs = socket.socketpair()
    fleet, process = await Channel.over(ours), await Channel.over(theirs)
    yield _Inside(process), fleet
    fleet.close()
    process.close()


async def test_a_run_whose_cancel_comes_with_it_is_told_to_be_over(ends: Ends) -> None:
    # DR-16: else the fleet waits, and then ends the process with all that runs in it
    inside, fleet = ends
    inside._hear(Run(7, "run", "agent", "hello"))
    inside._hear(Cancel(7))
    async with asyncio.timeout(20):
        assert unpacked(await fleet.receive()) == Failed(7, cancelled=True)
    assert inside._runs == {}


async def test_a_cancel_of_what_never_came_is_told_to_be_over(ends: Ends) -> None:
    inside, fleet = ends
    inside._hear(Cancel(8))
    async with asyncio.timeout(20):
        assert unpacked(await fleet.receive()) == Failed(8, cancelled=True)
