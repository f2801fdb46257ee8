"""The FleetPort of a fleet for code that runs in the fleet's own event loop."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pallas.model import (
    AgentDetail,
    Envelope,
    EventBatch,
    Exchange,
    FleetSnapshot,
    FleetVerb,
    MessageRecord,
    Page,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
)
from pallas.surfaces.control.opening import open_control

from . import kept
from .fleet import Fleet


class LoopPort:
    """What the workbench asks of a fleet, passed on to it as it stands. Belongs to the fleet's loop."""

    can_control = True

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        return self._fleet.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``."""
        return self._fleet.hub.since(seq, limit)

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled."""
        self._fleet.kernel.cancel(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent."""
        self._fleet.control(agent, verb)

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet."""
        self._fleet.control_fleet(verb)

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent. Raises Fault."""
        return await self._fleet.describe(agent)

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire. Raises Fault."""
        return self._fleet.exchanges(run_id)

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run, from after a number on. Raises Fault."""
        return self._fleet.envelopes(run_id, after, limit)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand. Raises Fault."""
        return await self._fleet.call_tool(agent, server, tool, arguments, bearer)

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        """Durable threads, the one that was used last first. Raises Fault."""
        return await kept.threads(self._fleet, agent, limit, cursor)

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        """One thread of an agent. Raises Fault."""
        return await kept.thread(self._fleet, agent, thread)

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        """Some rows of a thread. Raises Fault."""
        return await kept.messages(self._fleet, thread, limit, cursor, newest_first)

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        """Give a thread another title. Raises Fault."""
        return await kept.rename(self._fleet, thread, title)

    async def delete_thread(self, thread: str) -> None:
        """Delete a thread with all its messages. Raises Fault."""
        await kept.delete(self._fleet, thread)

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        """Tasks, the newest first. Raises Fault."""
        return await kept.tasks(self._fleet, agent, limit, cursor)

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        """One task with its answer. Raises Fault."""
        return await kept.task(self._fleet, id)

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        """Ask for a task to be cancelled. Raises Fault."""
        return await kept.cancel_task(self._fleet, id)

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Keep parameters as the agent's own. Raises Fault."""
        return await kept.save_params(self._fleet, agent, params)


def offer_control(fleet: Fleet, log_file: Path) -> None:
    """Give a fleet that has its ports, and has not started, a control API where it may have one."""
    if not fleet.registry_url:
        return
    fleet.control_api = open_control(
        LoopPort(fleet),
        project=fleet.project.root,
        bind=fleet.bind,
        port=fleet.project.registry_port,
        log_file=log_file,
    )
