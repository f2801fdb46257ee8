"""The eight tools of the bridge, over the agent directory and the sessions."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from fastmcp.server.dependencies import FastMCPRequestContext, fastmcp_request_ctx
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp_types import ToolAnnotations
from pydantic import PrivateAttr

from pallas.model import Fault, FaultType, FleetSnapshot, FleetState, Principal
from pallas.runs.kernel import RETRY_AFTER
from pallas.runs.run import Listener
from pallas.safe_text import one_line
from pallas.surfaces.auth.inbound_auth import Inbound
from pallas.surfaces.mcp_run import run_observed
from pallas.surfaces.send_message_call import (
    bearer_of,
    caller_of,
    client_of,
    fault_result,
    trace_of,
    wants_text,
)

from .tool_arguments import Arguments
from .tool_documents import (
    about_run,
    agent_document,
    answer,
    document,
    failed_task,
    millis,
    session_created,
    session_status,
)
from .tool_schemas import (
    CANCEL,
    CLOSE,
    CREATE,
    DELEGATE,
    DISCOVER,
    HEALTH,
    PROMPT,
    STATUS,
    ToolListing,
)

if TYPE_CHECKING:
    from pallas.questions.questions import Questions
    from pallas.runs.agent_directory import AgentDirectory
    from pallas.sessions import DelegationOutcome, SessionAdmission, Sessions
    from pallas.tasks import Tasks

NOT_STARTED: Final = "Executor not started"
_REASON: Final = 200

Answer = Callable[[Arguments, FastMCPRequestContext | None], Awaitable[ToolResult]]

Delegation = Callable[[Listener | None], Awaitable["DelegationOutcome"]]


@dataclass(frozen=True, slots=True)
class BridgeParts:
    """The parts of the fleet that the bridge uses.

    ``admission`` counts the requests in progress; ``started`` returns whether any agent is available yet.
    With ``tasks``, work can become a task; while ``handles`` is true also for clients without the extension,
    by two more tools. Callers are asked the ``questions`` of their runs. ``began`` is when the fleet was
    made, by ``time.monotonic``.
    """

    directory: "AgentDirectory"
    sessions: "Sessions"
    admission: "SessionAdmission"
    snapshot: Callable[[], FleetSnapshot]
    inbound: Inbound
    started: Callable[[], bool]
    tasks: "Callable[[], Tasks | None]" = lambda: None
    handles: Callable[[], bool] = lambda: False
    questions: "Questions | None" = None
    began: float = field(default_factory=monotonic)


class BridgeTool(Tool):
    """One tool of the bridge; a Fault becomes an error result."""

    _about: ToolListing = PrivateAttr()
    _work: Answer = PrivateAttr()

    def __init__(self, about: ToolListing, work: Answer) -> None:
        super().__init__(
            name=about.name,
            title=about.title,
            description=about.description,
            parameters=dict(about.schema),
            output_schema=None,
            annotations=ToolAnnotations(
                title=about.title,
                read_only_hint=about.reads,
                destructive_hint=False,
                idempotent_hint=about.again,
            ),
        )
        self._about, self._work = about, work

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Return the answer, or the Fault as an error."""
        try:
            return await self._work(Arguments(self._about, arguments), fastmcp_request_ctx.get())
        except Fault as fault:
            return fault_result(fault)


class BridgeWork:
    """The work of the tools, for any caller.

    Calls that give agents work count as requests in progress (DR-19); looking, cancelling and closing are
    always possible.
    """

    def __init__(self, parts: BridgeParts) -> None:
        self._parts = parts

    async def health(self, _: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Report on the agents that the caller may use; healthy while any is not unavailable."""
        found = self._parts.directory.infos(caller_of(context))
        sessions = self._parts.sessions
        return document(
            {
                "healthy": any(each.status != "unavailable" for each in found),
                "agents": {"total": len(found), "ready": sum(each.status == "ready" for each in found)},
                "sessions": {"active": sessions.active, "capacity": sessions.capacity},
                "uptime": millis(monotonic() - self._parts.began),
            }
        )

    async def discover(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Return an object that holds the list, never a bare list."""
        capability = given.text("capability") or None
        found = self._parts.directory.infos(caller_of(context), capability)
        return document({"agents": [agent_document(each) for each in found]})

    async def create(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Open a session, or reopen a failed one (``metadata.resume``)."""
        self._admit()
        principal = caller_of(context)
        with self._parts.admission.taken():
            record = await self._parts.sessions.create(
                given.agent(), principal, metadata=given.mapping("metadata")
            )
        return document(session_created(record))

    async def prompt(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Run one prompt and return its answer; the run is cancelled if the caller disconnects."""
        self._start()
        params, timeout = given.params("runtimeParams"), given.seconds("timeout")
        with self._parts.admission.taken():
            result = await run_observed(
                context,
                lambda hear: self._parts.sessions.prompt(
                    given.text("sessionId"),
                    given.text("prompt"),
                    caller_of(context),
                    timeout=timeout,
                    params=params,
                    queue=given.flag("queue"),
                    listener=hear,
                    bearer=bearer_of(context),
                    trace=trace_of(context),
                    caller=client_of(context),
                ),
                self._parts.questions,
                with_text=wants_text({}, context),
            )
        try:
            return document(answer(result), about_run(result))
        except Fault as fault:  # the agent did answer, and the session stays valid
            raise Fault(fault.type, fault.message, data={**fault.data, "sessionValid": True}) from None

    async def status(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Return the state of a session."""
        found = await self._parts.sessions.status(given.text("sessionId"), caller_of(context))
        return document(session_status(found))

    async def close(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Close a session, whether or not it exists."""
        session, reason = given.text("sessionId"), one_line(given.text("reason"), _REASON)
        await self._parts.sessions.close(session, caller_of(context), reason or "closed")
        return document({"closed": True, "sessionId": one_line(session, 80)})

    async def cancel(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Cancel a request; ``wasRunning`` says whether there was one."""
        session = given.text("sessionId")
        running = await self._parts.sessions.cancel(
            session, caller_of(context), given.text("requestId") or None
        )
        return document({"cancelled": True, "sessionId": one_line(session, 80), "wasRunning": running})

    async def delegate(self, given: Arguments, context: FastMCPRequestContext | None) -> ToolResult:
        """Run one piece of work in a session of its own."""
        work = self.delegation(given, context)
        with self._parts.admission.taken():
            questions, with_text = self._parts.questions, wants_text({}, context)
            return delegated(await run_observed(context, work, questions, with_text=with_text))

    def delegation(self, given: Arguments, context: FastMCPRequestContext | None) -> Delegation:
        """Return the work of a ``tasks_delegate``, which needs nothing of the call after it has returned."""
        self._admit()
        return partial(
            self._delegate,
            given.text("prompt"),
            caller_of(context),
            agent=given.agent(),
            timeout=given.seconds("timeout"),
            metadata=given.mapping("metadata"),
            params=given.params("runtimeParams"),
            bearer=bearer_of(context),
            trace=trace_of(context),
            caller=client_of(context),
        )

    def meant(self, given: Arguments, context: FastMCPRequestContext | None) -> str:
        """Return the agent of a ``tasks_delegate``, as far as it is known before the work runs."""
        try:
            return self._parts.directory.resolve(given.agent(), caller_of(context))
        except Fault:  # the work itself raises this
            return one_line(given.agent() or "", 80)

    async def _delegate(
        self, text: str, principal: Principal, hear: Listener | None, **more: Any
    ) -> "DelegationOutcome":
        return await self._parts.sessions.delegate(text, principal, listener=hear, **more)

    def _start(self) -> None:
        """Raise Fault (INTERNAL) while no agent is available yet (DR-8)."""
        if not self._parts.started():
            raise Fault(FaultType.INTERNAL, NOT_STARTED)

    def _admit(self) -> None:
        """Like ``_start``, and raise Fault (TRANSPORT) if the fleet is ending, so that no new session is
        opened."""
        state = self._parts.snapshot().state
        if state is FleetState.DRAINING:
            text = "the fleet is draining: it finishes the runs it has and takes no new ones; try again later"
        elif state in (FleetState.STOPPING, FleetState.STOPPED):
            text = "the fleet is stopping; try again when it is back"
        else:
            self._start()
            return
        raise Fault(FaultType.TRANSPORT, text, data={"retry_after": RETRY_AFTER})


def delegated(done: "DelegationOutcome") -> ToolResult:
    """Return the result of a piece of work (DR-18)."""
    if done.result is None:
        unknown = Fault(FaultType.INTERNAL, "the task ended without an answer; the log has the details")
        return failed_task(done.session_id, done.fault or unknown)
    body: Mapping[str, Any] = {
        "success": True,
        "sessionId": done.session_id,
        "agentId": done.agent,
        **answer(done.result),
    }
    try:
        return document(body, about_run(done.result))
    except Fault as fault:
        return failed_task(done.session_id, fault)


def works(work: BridgeWork) -> Iterator[tuple[ToolListing, Answer]]:
    """Yield each tool with the method that does its work."""
    yield HEALTH, work.health
    yield DISCOVER, work.discover
    yield CREATE, work.create
    yield PROMPT, work.prompt
    yield STATUS, work.status
    yield CLOSE, work.close
    yield CANCEL, work.cancel
    yield DELEGATE, work.delegate
