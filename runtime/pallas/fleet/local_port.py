"""The FleetPort of a fleet for code that runs in the fleet's own event loop, and its control API."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pallas.model import (
    AgentDetail,
    Envelope,
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
    Principal,
    Step,
    StepDetail,
    TaskRecord,
    ThreadRecord,
    ToolOutcome,
    Verb,
    refusals,
)
from pallas.model.params import PER_CALL_KEYS
from pallas.safe_text import one_line
from pallas.sessions.thread_access import ADMIN

from .fleet import Fleet

if TYPE_CHECKING:
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

OPERATOR: Final = Principal(ADMIN)
"""The one who runs the fleet sees the threads and tasks of every caller."""
MAX_PAGE: Final = 200
MAX_TITLE: Final = 200
_NOTHING_STORED: Final = (
    "this fleet keeps nothing: it was started without a database, and its conversations go with it; "
    "database_url: in agents.yaml or PALLAS_DATABASE_URL says where to keep them"
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

    async def steps(self, run_id: str) -> tuple[Step, ...]:
        return await self._fleet.kernel.step_reader.list(run_id)

    async def step(self, run_id: str, number: int) -> StepDetail:
        found = await self._fleet.kernel.step_reader.get(run_id, number)
        if found is None:
            raise refusals.not_found("step not found: it is unknown, or not stored any more")
        return found

    async def envelopes(self, run_id: str, after: int = 0, limit: int = 1_000) -> tuple[Envelope, ...]:
        return self._fleet.envelopes(run_id, after, limit)

    async def call_tool(
        self, agent: str, server: str, tool: str, arguments: Mapping[str, Any], bearer: str | None = None
    ) -> ToolOutcome:
        return await self._fleet.call_tool(agent, server, tool, arguments, bearer)

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
                "there is nothing to save: no parameter is set here but the instruction's, which is "
                "never saved",
            )
        resource = await catalog.get("agent", agent)
        before = Params.read(resource.spec.get("defaultParams") or {}, strict=False)
        spec = {"defaultParams": given.over(before).to_json()}
        await catalog.update("agent", agent, spec, version=resource.version)
        return f"{', '.join(given.values)} saved: {agent} has them for every caller from now on."

    async def threads(self, agent: str = "", limit: int = 50, cursor: str = "") -> Page[ThreadRecord]:
        return await self._threads.list(OPERATOR, agent=agent or None, limit=_bounded(limit), cursor=cursor)

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


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
