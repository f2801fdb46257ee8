"""The operations of a fleet, whether it runs in this process or elsewhere."""

# The decorator makes the bodies of operations.
# mypy: disable-error-code="empty-body"
# ruff: noqa: B027

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from .discovery import TaskRecord
from .event_types import Event
from .inspection import AgentDetail, Envelope, Exchange, ResourceReading, ToolOutcome
from .ledger_records import (
    MAX_SEARCH,
    MessageRecord,
    Page,
    PastRun,
    ReplicaRecord,
    RunElsewhere,
    ThreadRecord,
)
from .operations import ArgumentRules, Operation, TokenScope, operation
from .questions import Question
from .snapshot import FleetSnapshot
from .spend_limits import AccountStatus
from .steps import Step, StepDetail
from .verdict import VerdictReached

Verb = Literal["start", "stop", "restart", "reload", "rollback"]
"""Actions on one agent. ``reload`` reads its definition again while the agent keeps answering; ``rollback``
makes the previous version answer."""

FleetVerb = Literal["pause", "resume", "reload"]
"""Actions on the fleet: ``pause`` and ``resume`` the watch of its files, or ``reload`` changes."""

type AgentName = Annotated[str, ArgumentRules(is_agent=True, log_field="agent")]
type RunId = Annotated[str, ArgumentRules(shown=60, log_field="run_id")]
type Handle = Annotated[str, ArgumentRules(shown=9)]
"""The id of a thread or a task. It is shown only in part, since the whole id gives access."""
type ServerName = Annotated[str, ArgumentRules(minimum=1, maximum=200)]
type Uri = Annotated[str, ArgumentRules(minimum=1, maximum=2_000, shown=200)]
type PageSize = Annotated[int, ArgumentRules(minimum=1, maximum=200)]
_MAX_CHANGED: Final = 500_000
"""Characters of a text that is other than it was in a run: a body has at most 1 MiB."""
type Cursor = Annotated[str, ArgumentRules(what="the next of a page of this fleet", maximum=1_000)]
"""The ``next`` of the page before; empty for the first page."""


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events after a sequence number, oldest first."""

    events: tuple[Event, ...]
    next: int
    """The number to pass to ``since`` next."""
    dropped: int = 0
    """How many events left the ring unread."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """How a workbench is attached to a fleet that another process runs. Times are of its own clock."""

    place: str
    """Where it runs, in words: ``this machine (pid 42)``, ``desk.example:24200``."""
    since: float
    access: TokenScope
    late: int = 0
    """Seconds since the fleet last answered; 0 while that is not long ago."""
    lost_at: float = 0.0
    """When it last answered, if there is no connection now; else 0."""


class FleetPort(ABC):
    """A fleet as its workbench sees it. The methods with ``@operation`` are the table of operations.

    A port inherits them and defines in ``_call`` and ``_send`` how it carries one: into another thread, or
    over HTTP. ``LocalPort`` overrides each of them with the code that does it.

    Plain methods return at once and may be called from any thread; coroutines are awaited on any loop, raise
    Fault, and end at their own deadline. With ``can_control`` False everything above the scope ``read`` is
    refused (AUTH). A fleet without a database refuses threads and tasks (CONFIG).
    """

    @property
    def can_control(self) -> bool:
        """Whether changes are allowed."""
        return True

    @property
    def attachment(self) -> Attachment | None:
        """How it is attached; None for a fleet of this process, and before the first connection."""
        return None

    @abstractmethod
    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""

    @abstractmethod
    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        """Events with a number above ``seq``, at most ``limit`` of them."""

    @abstractmethod
    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` for each event, on any thread; returns a function that stops that.

        It must return at once. The snapshot may change without an event.
        """

    # Changes whose outcome an event reports

    @operation("POST /runs/{run_id}/cancel", title="cancel run {run_id}", when_stopped=None)
    def cancel(self, run_id: RunId) -> None:
        """Ask for a run to be cancelled. ``RunFinished`` reports its end."""

    @operation("POST /agents/{agent}/{verb}", title="{verb} {agent}")
    def control(self, agent: AgentName, verb: Verb) -> None:
        """Act on one agent. ``AgentChanged`` and ``Notice`` report the outcome."""

    @operation("POST /{verb}", title="{verb} the fleet")
    def control_fleet(self, verb: FleetVerb) -> None:
        """Act on the fleet. The snapshot, ``Reloaded`` and ``Notice`` report the outcome."""

    # Agents and runs

    @operation("GET /agents/{agent}", scope=TokenScope.READ)
    async def describe(self, agent: AgentName) -> AgentDetail:
        """The details of an agent, with its tools and its downstreams' tools."""

    @operation(
        "GET /runs/{run_id}/exchanges", scope=TokenScope.TEXTS, title="read exchanges", when_stopped=()
    )
    async def exchanges(self, run_id: RunId) -> tuple[Exchange, ...]:
        """The recorded wire traffic of a run, oldest first; empty if it is no longer recorded."""

    @operation("GET /runs", scope=TokenScope.READ, title="list past runs", when_stopped=())
    async def past_runs(self, limit: PageSize = 50) -> tuple[PastRun, ...]:
        """The last runs of all fleets of the ledger that are over, the oldest first.

        A run has at most its last 500 events, and all runs together 5,000; the newest have theirs. A token
        that may only read gets no texts.
        """

    @operation("GET /runs/{run_id}/steps", scope=TokenScope.TEXTS, title="read steps", when_stopped=())
    async def steps(self, run_id: RunId) -> tuple[Step, ...]:
        """The steps of a run, in order; empty if it has none or they are not stored any more."""

    @operation("GET /runs/{run_id}/steps/{number}", scope=TokenScope.TEXTS, title="read steps")
    async def step(
        self, run_id: RunId, number: Annotated[int, ArgumentRules(minimum=1, maximum=10**9)]
    ) -> StepDetail:
        """One step, with its request and its response. UPSTREAM if there is none."""

    @operation(
        "GET /runs/{run_id}/unfinished_calls",
        scope=TokenScope.TEXTS,
        title="read unfinished calls",
        when_stopped=(),
    )
    async def unfinished_calls(self, run_id: RunId) -> tuple[str, ...]:
        """What became of the calls whose answers were lost with another fleet, a line for each.

        Empty for a run that no other fleet began.
        """

    @operation("GET /verdict", scope=TokenScope.TEXTS, title="read the verdict", when_stopped=())
    async def verdict(self) -> tuple[VerdictReached, ...]:
        """The last verdict on a save; empty before the first."""

    @operation("POST /verdict/live", title="ask models for the verdict", result_key="said")
    async def ask_models(self) -> str:
        """Begin to send the requests that differ to models; returns in words how much that takes.

        Returns at once: ``VerdictReached`` reports the outcome. Raises Fault (CONFIG) if none may be asked.
        """

    @operation("GET /runs/{run_id}/limits", scope=TokenScope.READ, title="read limits", when_stopped=())
    async def run_limits(self, run_id: RunId) -> tuple[AccountStatus, ...]:
        """The limits that hold for a run of this fleet, with what remains; empty if it ended long ago."""

    @operation("GET /runs/{run_id}/said", scope=TokenScope.TEXTS, title="read what a run said")
    async def said(self, run_id: RunId) -> tuple[MessageRecord, ...]:
        """The question of a run and what its model wrote so far, at any replica, in order.

        Rows of its thread, without pictures and calls, 20,000 characters each; those among the newest 200
        of the thread. Empty for a run without a thread. UPSTREAM if there is no such run.
        """

    @operation("GET /runs/{run_id}/recording", scope=TokenScope.TEXTS, title="record a run", deadline_s=60.0)
    async def recording(self, run_id: RunId) -> str:
        """A run that is over with all that it led to: the tar archive of its recording, in base64.

        UPSTREAM if there is none, CONFIG if it is not over.
        """

    @operation("POST /runs/{run_id}/fork", title="fork run {run_id} at step {step}", deadline_s=70.0)
    async def fork(
        self,
        run_id: RunId,
        step: int,
        message: Annotated[str, ArgumentRules(maximum=_MAX_CHANGED)] = "",
        result: Annotated[str | None, ArgumentRules(maximum=_MAX_CHANGED)] = None,
        model: Annotated[str, ArgumentRules(maximum=200)] = "",
    ) -> str:
        """Continue from a step of a run that is over; the id of the new run, which has begun.

        The step is done once more: a question of the agent to its model, or a call in such a step, which has
        ``result`` unless that is None and is then not made. An empty ``message`` or ``model`` is that of the
        run. Raises Fault: UPSTREAM if there is no such run, PROTOCOL for a step that none can continue from.
        """

    @operation("GET /runs/{run_id}/messages", scope=TokenScope.TEXTS, title="read messages", when_stopped=())
    async def envelopes(
        self,
        run_id: RunId,
        after: Annotated[int, ArgumentRules(maximum=10**9)] = 0,
        limit: Annotated[int, ArgumentRules(minimum=1, maximum=1_000)] = 1_000,
    ) -> tuple[Envelope, ...]:
        """Messages between the handlers of a run with a number above ``after``, the lowest first.

        At most ``limit`` of them and fewer where they are large; empty when there are no more, or when the
        run is no longer recorded.
        """

    @operation(
        "POST /agents/{agent}/tools/call", title="call tool {server}/{tool} of {agent}", deadline_s=305.0
    )
    async def call_tool(
        self,
        agent: AgentName,
        server: Annotated[str, ArgumentRules(maximum=200, default="")],
        tool: Annotated[str, ArgumentRules(minimum=1, maximum=200)],
        arguments: Annotated[Mapping[str, Any], ArgumentRules(default={})],
        bearer: Annotated[str | None, ArgumentRules(maximum=16_384, is_secret=True)] = None,
    ) -> ToolOutcome:
        """Call a tool by hand, within 300 s: the agent's own if ``server`` is empty, else a downstream's.

        A downstream is called as the agent would call it, with the project's settings; ``bearer`` is
        forwarded only if that downstream opted in.
        """

    @operation(
        "POST /agents/{agent}/resources/read", title="read resource {uri} of {server}", deadline_s=25.0
    )
    async def read_resource(self, agent: AgentName, server: ServerName, uri: Uri) -> ResourceReading:
        """Read a resource of a downstream once, within 20 s. Raises Fault (UPSTREAM)."""

    @operation(
        "POST /agents/{agent}/resources/follow", title="follow resource {uri} of {server}", deadline_s=55.0
    )
    async def follow_resource(
        self,
        agent: AgentName,
        server: ServerName,
        uri: Uri,
        subscription: Annotated[str, ArgumentRules(maximum=40)] = "",
        after: Annotated[int, ArgumentRules(maximum=10**9)] = 0,
    ) -> ResourceReading:
        """Subscribe to a resource of a downstream, and read it; then wait for its updates, call by call.

        With a ``subscription`` of an earlier answer it waits until the server has notified of more updates
        than ``after``, 20 s at most. The subscription ends when a call is cancelled or fails, and when none
        follows for 30 s. Raises Fault: CONFIG if the server takes no subscriptions or too many are followed,
        UPSTREAM once the subscription has ended.
        """

    @operation(
        "POST /agents/{agent}/tools/accept",
        title="accept the tools of {server}",
        deadline_s=35.0,
        result_key="said",
    )
    async def accept_tools(
        self,
        agent: AgentName,
        server: ServerName,
        digest: Annotated[str, ArgumentRules(minimum=1, maximum=200)],
    ) -> str:
        """Write what a downstream lists into the project's ``tools.lock``; returns in words what was done.

        ``digest`` is that of ``ServerLock``, as it was shown. Raises Fault (CONFIG): the server lists
        something else by now, there is no lock, or the file cannot be written where the fleet runs.
        """

    @operation("POST /agents/{agent}/params", title="save parameters of {agent}", result_key="said")
    async def save_params(self, agent: AgentName, params: Mapping[str, Any]) -> str:
        """Save these as the agent's own parameters for every caller (AG-26).

        Parameters of a single conversation (the instruction's) are left out (AG-13). Returns in words what
        was done. Raises Fault (CONFIG) that says where to write them, for an agent whose parameters are in a
        file.
        """

    # Durable threads and tasks, of all callers

    @operation("GET /threads", scope=TokenScope.TEXTS, title="read threads")
    async def threads(
        self,
        agent: str = "",
        limit: PageSize = 50,
        cursor: Cursor = "",
        search: Annotated[str, ArgumentRules(what="some words", maximum=MAX_SEARCH)] = "",
        branches_of: Cursor = "",
    ) -> Page[ThreadRecord]:
        """Durable threads, last used first. With ``search`` those with all its words in one message or in the
        title, each with a snippet; with ``branches_of`` those that continue from the thread of that id.
        """

    @operation("GET /agents/{agent}/thread", scope=TokenScope.TEXTS, title="read threads")
    async def thread(
        self,
        agent: AgentName,
        thread: Annotated[
            str, ArgumentRules(alias="which", what="the id or the handle of a thread", minimum=1, maximum=500)
        ],
    ) -> ThreadRecord:
        """One thread of an agent, by its id or its caller's handle. UPSTREAM if there is none."""

    @operation("GET /threads/{thread}/messages", scope=TokenScope.TEXTS, title="read threads")
    async def thread_messages(
        self,
        thread: Handle,
        limit: PageSize = 50,
        cursor: Cursor = "",
        newest_first: Annotated[bool, ArgumentRules(alias="newest")] = False,
    ) -> Page[MessageRecord]:
        """Some rows of a thread, by its id; their cost does not grow with the thread."""

    @operation("POST /threads/{thread}/rename", title="rename thread {thread}")
    async def rename_thread(
        self, thread: Handle, title: Annotated[str, ArgumentRules(maximum=2_000)]
    ) -> ThreadRecord:
        """Give a thread another title; returns the changed record."""

    @operation("DELETE /threads/{thread}", title="delete thread {thread}", result_key="deleted")
    async def delete_thread(self, thread: Handle) -> None:
        """Delete a thread with all its messages, for good."""

    @operation("GET /tasks", scope=TokenScope.TEXTS, title="read tasks")
    async def tasks(self, agent: str = "", limit: PageSize = 50, cursor: Cursor = "") -> Page[TaskRecord]:
        """Tasks, the newest first, without their results."""

    @operation("GET /tasks/{id}", scope=TokenScope.TEXTS, title="read tasks")
    async def task(self, id: Handle) -> TaskRecord:  # noqa: A002 - the word of the record
        """One task with its answer. UPSTREAM if there is none."""

    @operation("DELETE /tasks/{id}", title="cancel task {id}")
    async def cancel_task(self, id: Handle) -> TaskRecord:  # noqa: A002 - as above
        """Ask for a task to be cancelled; returns its record. ``TaskChanged`` reports its end."""

    # Questions to people

    @operation("GET /questions", scope=TokenScope.TEXTS, title="read questions")
    async def questions(self, state: str = "", limit: PageSize = 50, cursor: Cursor = "") -> Page[Question]:
        """Questions of the fleet to people, the newest first; those in one state, or all."""

    @operation("GET /questions/{id}", scope=TokenScope.TEXTS, title="read questions")
    async def question(self, id: Handle) -> Question:  # noqa: A002 - the word of the record
        """One question. UPSTREAM if there is none."""

    @operation("POST /questions/{id}/answer", title="answer question {id}: {action}")
    async def answer_question(
        self,
        id: Handle,  # noqa: A002 - as above
        action: Literal["accept", "decline", "cancel"],
        always: bool = False,
        content: Annotated[Mapping[str, Any] | None, ArgumentRules()] = None,
    ) -> Question:
        """Answer an open question; returns it as it is then. ``QuestionAnswered`` reports it to the others.

        ``always`` allows the tool for the rest of the thread; ``content`` are the fields of a form. Raises
        Fault: UPSTREAM if there is none, or it is answered already; PROTOCOL for content that does not fit
        its schema.
        """

    # The fleets on the same database

    @operation("GET /replicas", scope=TokenScope.READ, title="list replicas")
    async def replicas(self, limit: PageSize = 50, cursor: Cursor = "") -> Page[ReplicaRecord]:
        """The replicas, the oldest first."""

    @operation("GET /replicas/runs", scope=TokenScope.READ, title="list runs of other replicas")
    async def runs_elsewhere(
        self, known: Annotated[str, ArgumentRules(maximum=10_000)] = "", here: str = ""
    ) -> tuple[RunElsewhere, ...]:
        """The runs in flight of other replicas, at most 200, and those that ended in the last minute.

        ``here`` is the replica whose events the caller reads; its runs are left out, although another worker
        process may answer. ``known`` are ids of runs, at most 200, with commas between them: their states are
        reported too, whichever fleet has them.
        """

    @operation("POST /replicas/{replica}/drain", title="drain replica {replica}", result_key="draining")
    async def drain_replica(self, replica: Annotated[str, ArgumentRules(minimum=1)]) -> None:
        """Have a replica drain and its process end, as with SIGTERM. Returns at once; events report.

        Another replica than this fleet is asked through the database, and sees it within about a second.
        Raises Fault: not found; CONFIG for one that is dead, drains already or is in a workbench.
        """

    # How a port carries them

    async def _call(self, operation: Operation, arguments: dict[str, Any]) -> Any:
        """The result of an operation that its caller waits for. Raises Fault."""
        raise NotImplementedError(operation.name)

    def _send(self, operation: Operation, arguments: dict[str, Any]) -> None:
        """Start an operation that is not a coroutine function. Returns at once."""
        raise NotImplementedError(operation.name)


class RunningFleet(FleetPort):
    """A fleet that this process starts and stops, or attaches to and leaves."""

    outlives = False
    """Whether another process runs it, so that it outlives this one."""

    @abstractmethod
    def start(self) -> None:
        """Begin to start; returns at once."""

    @abstractmethod
    def stop(self, timeout: float = 5.0) -> None:
        """Stop, within ``timeout`` seconds."""
