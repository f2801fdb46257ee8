"""The FleetPort of a fleet for code that runs in the fleet's own event loop, and its control API."""

import asyncio
import base64
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from pallas.model import (
    AgentDetail,
    Envelope,
    Event,
    EventBatch,
    Exchange,
    Fault,
    FaultType,
    FleetPort,
    FleetSnapshot,
    FleetState,
    FleetVerb,
    MessageRecord,
    Page,
    Params,
    PastRun,
    Principal,
    ReplicaRecord,
    ResourceReading,
    RunElsewhere,
    RunRecord,
    RunRequest,
    RunStarted,
    Step,
    StepDetail,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
    VerdictReached,
    refusals,
)
from pallas.model.ids import mint
from pallas.model.ledger_records import MAX_TITLE
from pallas.model.params import PER_CALL_KEYS
from pallas.model.questions import Question, QuestionAnswer, QuestionState
from pallas.model.spend_limits import AccountStatus
from pallas.model.verdict import live_text
from pallas.recordings.fork_point import forked_request
from pallas.recordings.recording_folder import archive_of
from pallas.runs.lost_calls import unfinished_calls
from pallas.runs.run_recording import portable_recording, record_run
from pallas.safe_text import one_line
from pallas.sessions.thread_access import ADMIN

from .context import FleetContext
from .fleet import Fleet

if TYPE_CHECKING:
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

OPERATOR: Final = Principal(ADMIN)
"""The one who runs the fleet sees the threads and tasks of every caller."""
MAX_PAGE: Final = 200
MAX_SAID: Final = 20_000
"""Characters of one row of what a run said."""
_NOTHING_STORED: Final = (
    "this fleet keeps nothing: it was started without a database, and its conversations end with it; "
    "database_url: in agents.yaml or PALLAS_DATABASE_URL names the database to keep them in"
)


class LocalPort(FleetPort):
    """Does every operation with the fleet itself. Belongs to the fleet's loop; coroutines raise Fault.

    Checks no permissions: the control API checks its tokens before, and the local workbench may do all.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def snapshot(self) -> FleetSnapshot:
        return self._fleet.snapshot()

    def since(self, seq: int, limit: int = 5_000) -> EventBatch:
        return self._fleet.hub.since(seq, limit)

    def listen(self, wake: Callable[[], None]) -> Callable[[], None]:
        return self._fleet.hub.listen(lambda event: wake())

    def cancel(self, run_id: str) -> None:
        self._fleet.kernel.cancel(run_id)

    def control(self, agent: str, verb: Verb) -> None:
        self._fleet.control(agent, verb)

    def control_fleet(self, verb: FleetVerb) -> None:
        self._fleet.control_fleet(verb)

    async def describe(self, agent: str) -> AgentDetail:
        return await self._fleet.describe(agent)

    async def exchanges(self, run_id: str) -> tuple[Exchange, ...]:
        return self._fleet.exchanges(run_id)

    async def past_runs(self, limit: int = 50) -> tuple[PastRun, ...]:
        last = await self._ledger.runs.last(_bounded(limit))
        return tuple(PastRun(_elsewhere(each.run, each.replica), each.events) for each in last)

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        return await self._fleet.kernel.step_reader.list(run_id)

    async def step(self, run_id: str, number: int) -> StepDetail:
        found = await self._fleet.kernel.step_reader.get(run_id, number)
        if found is None:
            raise refusals.not_found("step not found: it is unknown, or not stored any more")
        return found

    async def unfinished_calls(self, run_id: str) -> tuple[str, ...]:
        return await unfinished_calls(self._fleet.kernel, self._fleet.ledger, run_id)

    async def verdict(self) -> tuple[VerdictReached, ...]:
        last = self._fleet.last_verdict
        return (last,) if last is not None else ()

    async def ask_models(self) -> str:
        return live_text(self._fleet.ask_models()).removeprefix("; ")

    async def run_limits(self, run_id: str) -> tuple[AccountStatus, ...]:
        spending = self._fleet.kernel.spending
        meter = spending.of(run_id) if spending is not None else None
        return await meter.statuses() if meter is not None else ()

    async def said(self, run_id: str) -> tuple[MessageRecord, ...]:
        live = self._fleet.kernel.in_flight.get(run_id)
        if self._fleet.ledger is None and live is not None:
            written = live.draft.text()[:MAX_SAID]
            return (MessageRecord("", "", 0, "assistant", written, "pending", run=run_id),) if written else ()
        run = await self._ledger.runs.get(run_id)
        if run is None:
            raise refusals.not_found("run not found: it is unknown, or was deleted with its thread")
        if not run.thread:
            return ()
        page = await self._ledger.threads.messages(run.thread, limit=MAX_PAGE, newest_first=True)
        rows = (
            row for row in reversed(page.items) if row.run == run_id and row.role in ("user", "assistant")
        )
        return tuple(
            replace(row, content=row.content[:MAX_SAID], tool_calls=(), images=())
            for row in rows
            if row.content
        )

    async def recording(self, run_id: str) -> str:
        fleet = self._fleet
        found = await portable_recording(fleet.kernel, self._ledger, fleet.project, run_id)
        return base64.b64encode(await asyncio.to_thread(archive_of, found)).decode()

    async def fork(
        self, run_id: str, step: int, message: str = "", result: str | None = None, model: str = ""
    ) -> str:
        fleet = self._fleet
        recording = await record_run(fleet.kernel, self._ledger, fleet.project, run_id)
        params = Params.read({"model": model} if model else {}, strict=True)
        asked = forked_request(recording, step, message=message or None, result=result, params=params)
        asked = replace(asked, conversation=mint(), new_conversation=True, principal=OPERATOR)
        return await _begun(fleet.context, asked)

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        return self._fleet.messages.envelopes(run_id, after, limit)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        return await self._fleet.call_tool(agent, server, tool, arguments, bearer)

    async def read_resource(self, agent: str, server: str, uri: str) -> ResourceReading:
        return await self._fleet.inspector.read_resource(agent, server, uri)

    async def follow_resource(
        self, agent: str, server: str, uri: str, subscription: str = "", after: int = 0
    ) -> ResourceReading:
        return await self._fleet.inspector.follow_resource(agent, server, uri, subscription, after)

    async def accept_tools(self, agent: str, server: str, digest: str) -> str:
        return await self._fleet.inspector.accept_tools(agent, server, digest)

    async def save_params(self, agent: str, params: Mapping[str, Any]) -> str:
        catalog = self._fleet.catalog
        if catalog is None:
            raise Fault(
                FaultType.CONFIG,
                f"parameters cannot be saved in this fleet, which keeps nothing; write them under params: of "
                f"{one_line(agent, 80)} in agents.yaml",
            )
        given = Params.read(params, strict=False).without(PER_CALL_KEYS)
        if not given:
            raise Fault(
                FaultType.CONFIG,
                "there is nothing to save: no parameter is set here, and the instruction is never saved",
            )
        resource = await catalog.get("agent", agent)
        before = Params.read(resource.spec.get("defaultParams") or {}, strict=False)
        spec = {"defaultParams": given.over(before).to_json()}
        await catalog.update("agent", agent, spec, version=resource.version or None)
        return f"{', '.join(given.values)} saved: {agent} has them for every caller from now on."

    async def threads(
        self, agent: str = "", limit: int = 50, cursor: str = "", search: str = "", branches_of: str = ""
    ) -> Page[ThreadRecord]:
        return await self._threads.list(
            OPERATOR,
            agent=agent or None,
            search=search,
            branches_of=branches_of,
            limit=_bounded(limit),
            cursor=cursor,
        )

    async def thread(self, agent: str, thread: str) -> ThreadRecord:
        self._threads  # noqa: B018 - raises where the fleet has no database
        ledger = self._fleet.ledger
        found = await ledger.threads.find(agent, thread) if ledger is not None else None
        if found is None:
            raise refusals.not_found("there is no such thread (any more); it may have been deleted")
        return found

    async def thread_messages(
        self, thread: str, limit: int = 50, cursor: str = "", newest_first: bool = False
    ) -> Page[MessageRecord]:
        return await self._threads.messages(
            thread, OPERATOR, limit=_bounded(limit), cursor=cursor, newest_first=newest_first
        )

    async def rename_thread(self, thread: str, title: str) -> ThreadRecord:
        return await self._threads.rename(thread, OPERATOR, one_line(title, MAX_TITLE))

    async def delete_thread(self, thread: str) -> None:
        await self._threads.delete(thread, OPERATOR)

    async def tasks(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[TaskRecord]:
        return await self._tasks.list(OPERATOR, agent=agent or None, limit=_bounded(limit), cursor=cursor)

    async def task(self, id: str) -> TaskRecord:  # noqa: A002 - the word of the record
        return await self._tasks.find(id, OPERATOR)

    async def cancel_task(self, id: str) -> TaskRecord:  # noqa: A002 - as above
        return await self._tasks.cancel(id, OPERATOR)

    async def questions(self, state: str = "", limit: int = 50, cursor: str = "") -> Page[Question]:
        known: tuple[QuestionState, ...] = get_args(QuestionState)
        if state and state not in known:
            raise Fault(FaultType.PROTOCOL, f"state: must be one of {', '.join(known)}, or empty for all")
        limit, wanted = _bounded(limit), state or None
        return await self._fleet.questions.list(OPERATOR, state=wanted, limit=limit, cursor=cursor)

    async def question(self, id: str) -> Question:  # noqa: A002 - the word of the record
        return await self._fleet.questions.get(id, OPERATOR)

    async def answer_question(
        self,
        id: str,  # noqa: A002 - as above
        action: Literal["accept", "decline", "cancel"],
        always: bool = False,
        content: Mapping[str, Any] | None = None,
    ) -> Question:
        answer = QuestionAnswer(action, content or {}, always)
        return await self._fleet.questions.answer(id, answer, OPERATOR)

    async def replicas(self, limit: int = 50, cursor: str = "") -> Page[ReplicaRecord]:
        return await self._ledger.replicas.list(limit=_bounded(limit), cursor=cursor)

    async def runs_elsewhere(self, known: str = "", here: str = "") -> tuple[RunElsewhere, ...]:
        ledger, wanted = self._ledger, [each for each in known.split(",") if each]
        if not ledger.has_others and not wanted:
            return ()
        return tuple(_elsewhere(run, replica) for run, replica in await ledger.runs.elsewhere(wanted, here))

    async def drain_replica(self, replica: str) -> None:
        ledger = self._ledger
        if replica != ledger.replica:
            await ledger.replicas.request_drain(replica)
        elif self._fleet.context.lifecycle.is_ending:
            raise refusals.drains_already(replica)
        else:
            self._fleet.request_drain()

    @property
    def _ledger(self) -> "Ledger":
        """The fleet's ledger. Raises Fault where it has none, or none yet."""
        ledger = self._fleet.ledger
        if ledger is None:
            self._threads  # noqa: B018 - raises where the fleet has no database, or is still starting
            raise Fault(FaultType.CONFIG, _NOTHING_STORED)
        return ledger

    @property
    def _threads(self) -> "Threads":
        """The fleet's threads. Raises Fault where it has none, or none yet."""
        threads = self._fleet.threads
        if threads is None and self._fleet.state is FleetState.STARTING:
            raise Fault(FaultType.TRANSPORT, "the fleet is starting; ask in a moment", retryable=True)
        if threads is None:
            raise Fault(FaultType.CONFIG, _NOTHING_STORED)
        return threads

    @property
    def _tasks(self) -> "Tasks":
        """The fleet's tasks. Raises Fault where it has none, or none yet."""
        tasks = self._fleet.storage.tasks
        if tasks is None:
            self._threads  # noqa: B018 - raises where the fleet has no database, or is still starting
            raise Fault(FaultType.CONFIG, _NOTHING_STORED)
        return tasks


def offer_control(fleet: Fleet, log_file: Path, port: FleetPort | None = None) -> None:
    """Give a fleet that has its ports, and has not started, a control API where it may have one."""
    fleet.surfaces.open_control(port or LocalPort(fleet), log_file)


async def _begun(context: FleetContext, request: RunRequest) -> str:
    """Start a run, which ends with the fleet at the latest; its id. Raises the Fault of a refusal."""
    begun: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    refused: list[Fault] = []

    def hear(event: Event) -> None:
        if isinstance(event, RunStarted) and not begun.done():
            begun.set_result(event.run_id)

    async def run() -> None:
        try:
            await context.kernel.run(request, hear)
        except Fault as fault:  # of a run that had begun events report it
            refused.append(fault)

    task = context.tasks.start(run())
    waited: set[asyncio.Future[Any]] = {task, begun}
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not begun.done():
        raise refused[0] if refused else Fault(FaultType.TRANSPORT, "the fleet is stopping")
    return begun.result()


def _elsewhere(run: RunRecord, replica: str) -> RunElsewhere:
    """A run of another fleet for those who may only look. The whole id of a thread gives access to it."""
    owner = Principal(run.owner)
    shown = replace(run, owner="", thread=one_line(run.thread, 9), partial="")
    return RunElsewhere(shown, replica, owner.fingerprint if owner.is_unverified else "", owner.shown)


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
