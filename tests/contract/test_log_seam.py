"""Log events of fast-agent that no reader of its bus takes are not made, and all others are."""

import asyncio
from pathlib import Path
from typing import Any, get_args

import pytest
from fast_agent.core.logging.events import Event, EventFilter, EventType, StreamingExclusionFilter
from fast_agent.core.logging.listeners import (
    BatchingListener,
    FilteredListener,
    LoggingListener,
    ProgressListener,
)
from fast_agent.core.logging.logger import get_logger
from fast_agent.core.logging.transport import AsyncEventBus, ConsoleTransport, NoOpTransport
from support.live import running, write_project

from pallas.executors.fastagent import log_seam
from pallas.executors.fastagent.log_seam import is_read
from pallas.mcp_client import library_hooks
from pallas.model import AgentState

LEVELS = get_args(EventType)
MINIMA = ("debug", "info", "warning", "error", None)


class Unfiltered:
    """A transport that takes everything."""

    async def send_event(self, event: Event) -> None:
        """Take it."""


@pytest.mark.parametrize("minimum", MINIMA)
@pytest.mark.parametrize("level", LEVELS)
def test_an_event_counts_as_read_wherever_a_filter_of_fast_agent_lets_one_of_its_level_pass(
    level: Any, minimum: Any
) -> None:
    one = StreamingExclusionFilter(min_level=minimum)
    passes = one.matches(Event(type=level, namespace="a", message="b"))
    bus = AsyncEventBus(NoOpTransport())
    assert not is_read(bus, level)
    for listener in (LoggingListener(event_filter=one), BatchingListener(event_filter=one)):
        bus.listeners = {"one": listener}
        assert is_read(bus, level) is passes
    bus.listeners = {}
    bus.transport = ConsoleTransport(event_filter=one)
    assert is_read(bus, level) is passes


@pytest.mark.parametrize("level", LEVELS)
def test_who_has_no_filter_reads_everything(level: str) -> None:
    bus = AsyncEventBus(NoOpTransport())
    bus.listeners = {"progress": ProgressListener(display=object())}
    assert is_read(bus, level)
    bus.listeners = {"all": FilteredListener()}
    assert is_read(bus, level)
    bus.listeners = {}
    bus.transport = Unfiltered()
    assert is_read(bus, level)


def test_a_level_that_is_unknown_counts_as_read() -> None:
    bus = AsyncEventBus(NoOpTransport())
    bus.listeners = {"one": LoggingListener(event_filter=EventFilter(min_level="error"))}
    assert is_read(bus, "fatal")


async def test_an_event_below_every_reader_is_not_made_and_the_others_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: list[Event] = []
    heard: list[str] = []
    both = asyncio.Event()

    class Heard(FilteredListener):
        async def handle_matched_event(self, event: Event) -> None:
            heard.append(event.message)
            if len(heard) == 2:
                both.set()

    emit = AsyncEventBus.emit

    async def counted(self: AsyncEventBus, event: Event) -> None:
        emitted.append(event)
        await emit(self, event)

    monkeypatch.setattr(AsyncEventBus, "emit", counted)
    async with running(write_project(tmp_path, {"desk": None})) as fleet:
        hook = log_seam.EVENTS
        assert hook.name in library_hooks.installed(hook.owner, hook.attribute)
        assert [agent.state for agent in fleet.agents] == [AgentState.READY]
        bus = AsyncEventBus.get()
        bus.add_listener("heard", Heard(EventFilter(min_level="info")))
        try:
            one = get_logger("a.test")
            one.debug("unread")
            one.info("read")
            one.warning("read too")
            async with asyncio.timeout(60):
                await both.wait()
        finally:
            bus.remove_listener("heard")
    assert heard == ["read", "read too"]
    assert [event.message for event in emitted if event.namespace == "a.test"] == heard
