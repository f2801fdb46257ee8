"""What the workbench asks of a fleet, whether it runs in the same process or elsewhere."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from .discovery import TaskRecord
from .events import Event
from .inspect import AgentDetail, Envelope, Exchange, ToolOutcome
from .records import MessageRecord, Page, ThreadRecord
from .snapshot import FleetSnapshot

Verb = Literal["start", "stop", "restart", "reload", "rollback"]
"""What can be done with one agent. ``reload`` reads its definition anew and answers on meanwhile;
``rollback`` puts the version before the one that answers in its place."""

FleetVerb = Literal["pause", "resume", "reload"]
"""What can be done with the fleet: ``pause`` and ``resume`` looking after its files, or ``reload`` whatever
is different in them now."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events after a sequence number, oldest first.

    ``next`` is the number to ask from next; ``dropped`` counts those that left the ring unread.
    """

    events: tuple[Event, ...]
    next: int
    dropped: int = 0


class FleetPort(Protocol):
    """The plain calls return at once and may come from any thread; the others are awaited on any loop.

    What is awaited raises Fault, and gives up by itself within its deadline (30 s; a tool's call 300 s).
    ``can_control`` is False where the fleet may only be looked at: ``cancel``, ``control``,
    ``control_fleet``, ``call_tool`` and everything about durable threads and tasks are refused there
    (AUTH), and ``envelopes``. A fleet that keeps nothing refuses durable ones as well (CONFIG).
    """

    @property
    def can_control(self) -> bool:
        """Whether anything may be changed."""
        ...

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        ...

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, at most ``limit`` of them."""
        ...

    def cancel(self, run_id: str) -> None:
        """Ask for a run to be cancelled; its ``RunFinished`` tells when it is."""
        ...

    def control(self, agent: str, verb: Verb) -> None:
        """Ask for something to be done with one agent; ``AgentChanged`` and ``Notice`` tell the outcome."""
        ...

    def control_fleet(self, verb: FleetVerb) -> None:
        """Ask for something to be done with the whole fleet; snapshot, ``Reloaded`` and ``Notice`` tell."""
        ...

    async def describe(self, agent: str) -> AgentDetail:
        """Everything about an agent, its tools and its downstreams' with their schemas."""
        ...

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        """What a run said over the wire, oldest first; empty when nothing of it is kept any more."""
        ...

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run, those with a number above ``after``, the lowest first.

        At most ``limit`` of them and fewer where they are large; empty when there are no more, or nothing of
        the run is kept any more.
        """
        ...

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        """Call a tool by hand: one of the agent's own where ``server`` is empty, else of a downstream.

        A downstream is called as the agent would, with the project's settings; ``bearer`` goes along only
        where that downstream was opted in.
        """
        ...

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        """Durable threads of whomever, of one agent or of all, the one that was used last first.

        At most 200 at once; ``cursor`` is the ``next`` of the page before.
        """
        ...

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        """One thread of an agent, by its id or by the handle that its caller made; UPSTREAM without it."""
        ...

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        """Some rows of a thread, by its id; what they cost does not grow with the thread."""
        ...

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        """Give a thread another title; returns it as it is then."""
        ...

    async def delete_thread(self, thread: str) -> None:
        """Delete a thread with all its messages, for good."""
        ...

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        """Tasks of whomever, of one agent or of all, the newest first, without what came of them.

        At most 200 at once; ``cursor`` is the ``next`` of the page before.
        """
        ...

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        """One task with its answer; UPSTREAM without it."""
        ...

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        """Ask for a task to be cancelled; returns it as it is then, and ``TaskChanged`` tells its end."""
        ...

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        """Keep these as the agent's own parameters, for every caller from then on (AG-26).

        What holds for one conversation only (the instruction's) is left out (AG-13). Returns in words what
        was done; CONFIG that says where to write them for an agent whose parameters stand in a file.
        """
        ...
