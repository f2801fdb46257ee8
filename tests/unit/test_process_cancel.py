"""A run that is cancelled before its process has begun with it: said at once, for somebody waits for that."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest_asyncio

from pallas import __version__
from pallas.executors import ExecutorTurn
from pallas.executors.ipc.channel import Channel
from pallas.executors.ipc.child_messages import (
    FROM_CHILD,
    PROTOCOL,
    CallCancelled,
    CancelCall,
    FleetHello,
    MessageDecoder,
)
from pallas.executors.process.agent_child import AgentChild
from pallas.executors.process.agent_messages import AgentTurn

Ends = tuple[AgentChild, Channel]
decoded = MessageDecoder(*FROM_CHILD)


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[Ends]:
    """What goes on in the process, and the fleet's end of its channel."""
    ours, theirs = socket.socketpair()
    fleet, process = await Channel.over(ours), await Channel.over(theirs)
    child = AgentChild(process)
    child._handle(FleetHello(__version__, PROTOCOL))
    yield child, fleet
    fleet.close()
    process.close()


async def test_a_run_whose_cancel_comes_with_it_is_told_to_be_over(ends: Ends) -> None:
    # DR-16: else the fleet waits, and then ends the process with all that runs in it
    child, fleet = ends
    child._handle(AgentTurn(7, ExecutorTurn("run", "agent", "hello")))
    child._handle(CancelCall(7))
    async with asyncio.timeout(60):
        assert decoded(await fleet.receive()) == CallCancelled(7)
    assert child._calls == {}


async def test_a_cancel_of_what_never_came_is_told_to_be_over(ends: Ends) -> None:
    child, fleet = ends
    child._handle(CancelCall(8))
    async with asyncio.timeout(60):
        assert decoded(await fleet.receive()) == CallCancelled(8)
