"""The fleet's storage. Opens the ledger at startup and closes it after the last run."""

import asyncio
import importlib
import logging
import os
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Self

from pallas.access.grants import Grants
from pallas.config import Project
from pallas.config.database import MEMORY
from pallas.config.kinds import TasksConfig
from pallas.ledger import database_url_of
from pallas.limits.spending import Spending
from pallas.model import Fault, FleetState, LifeReport, Notice
from pallas.model.fingerprint import adopt_salt
from pallas.model.other_workers import ANSWER_QUESTION, CANCEL_RUN, CANCEL_TASK
from pallas.runs.kernel import Kernel
from pallas.runs.keyed_runs import KeyedRuns
from pallas.runs.nested_runs import NestedRuns
from pallas.safe_text import one_line
from pallas.telemetry.event_hub import EventHub

from .worker_process import WorkerProcess

if TYPE_CHECKING:
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

    from .context import FleetContext
    from .takeover import Takeover

log = logging.getLogger(__name__)

CLOSE_TIMEOUT: Final = 3.0
RECORDS: Final = 0.5
"""The share of the time that a close has in which runs write down how they ended."""
_ALIVE: Final = {FleetState.STARTING: "starting", FleetState.RUNNING: "serving"}
"""The states of a fleet that does not end, as the list of replicas has them."""


class Storage:
    """The ledger of one fleet, its threads and its tasks. Belongs to the fleet's loop.

    ``url`` is that of the database, None for a fleet without one. ``tasks`` gives the limits of tasks as they
    are now, ``state`` where the fleet is between its start and its end. ``worker`` is this process where
    others use the same database for the same project: then conversations in memory are no way out.
    ``end_process`` has this process drain and end. Without it this is the fleet of a workbench: no other
    replica can ask it to drain, and it does not wait for a database server that is away.
    """

    @classmethod
    def of(cls, context: "FleetContext", database: str | None) -> Self:
        """That of a fleet; ``database`` as in ``Fleet``. The kernel counts what runs spend from then on."""
        current = context.current
        context.kernel.spending = Spending(
            lambda agent: current.project.limits_for(agent),
            current.prices.price,
            current.prices.ready,
            publish=context.hub.publish,
        )
        return cls(
            database,
            kernel=context.kernel,
            hub=context.hub,
            grants=lambda: context.grants,
            tasks=lambda: context.project.tasks,
            state=lambda: context.lifecycle.state,
            worker=context.options.worker,
            end_process=context.options.end_process,
        )

    def __init__(
        self,
        url: str | None,
        *,
        kernel: Kernel,
        hub: EventHub,
        grants: Callable[[], Grants],
        tasks: Callable[[], TasksConfig] = TasksConfig,
        state: Callable[[], FleetState] = lambda: FleetState.RUNNING,
        worker: WorkerProcess | None = None,
        end_process: Callable[[], None] | None = None,
    ) -> None:
        self._url = url
        self._end_process = end_process
        self._asked_by = ""
        self._worker = worker
        self._limits = tasks
        self._state = state
        self._takeover: Takeover | None = None
        self._kernel = kernel
        self._hub = hub
        self._grants = grants
        self.ledger: Ledger | None = None
        self.threads: Threads | None = None
        self.parked: Tasks | None = None
        """The calls that wait for a person while no request is open, and the tasks."""

    @property
    def tasks(self) -> "Tasks | None":
        """The tasks; None where a handle would end with the fleet, and so be no durable one."""
        return None if self.ledger is None or self.ledger.is_private else self.parked

    async def open(self, project: Project) -> None:
        """Open the database and migrate its tables.

        If the database is the usual file and cannot be opened, conversations stay in memory, and a Notice
        reports that. Raises Fault (CONFIG) if the project or the environment names the database.
        """
        if self._url is None:
            own = await asyncio.to_thread(importlib.import_module, "pallas.tasks")
            self.parked = self._tasks_in(own, own.TaskMemory())
            return
        worker = self._worker
        ledgers, threads, tasks = await asyncio.to_thread(_imported)
        url = self._url
        try:
            # A person at a workbench wants to hear at once that there is no database; a service waits for it.
            served = {"drain": self._drain, "tell": self._warn} if self._end_process is not None else {}
            self.ledger = await ledgers.open_ledger(url, report=self._report, **served)
        except Fault as fault:
            if worker is not None or project.database_url or os.environ.get("PALLAS_DATABASE_URL"):
                raise
            text = f"{fault.message}; until then conversations are kept in memory and end with the fleet"
            log.error("%s", text)
            self._hub.publish(Notice(level="error", text=text))
            url = MEMORY
            self.ledger = await ledgers.open_ledger(url)
        ledger = self.ledger
        assert ledger is not None
        ledger.room.most_mib = project.step_texts_mib
        _same_principals(ledger.salt)
        self._kernel.use_ledger(ledger)
        if self._kernel.spending is not None:
            self._kernel.spending.use_ledger(ledger.spending)
        self._kernel.keyed = KeyedRuns(self._kernel, ledger)
        self._kernel.nested = NestedRuns(self._kernel, ledger)
        self.threads = threads.Threads(
            ledger, self._grants(), self._kernel.forget_thread, self._kernel.unwritten
        )
        # A handle that ends with the fleet would be no durable one: nor is it stored.
        self.parked = self._tasks_in(tasks, tasks.TaskMemory() if url == MEMORY else ledger.tasks)
        if worker is not None:
            self._hear(worker, self.parked)
        if ledger.notes is not None:
            ledger.notes.hear(ANSWER_QUESTION, self._kernel.questions.hear_note)
            self._kernel.questions.others = ledger.notes

    def _tasks_in(self, tasks: Any, store: Any) -> "Tasks":
        """The tasks that are stored there; ``tasks`` is their room, which is imported late."""
        made: Tasks = tasks.Tasks(
            store,
            self._kernel,
            self._hub,
            self._grants(),
            config=self._limits,
            stopping=lambda: self._state() not in _ALIVE,
        )
        return made

    async def take_over(self, begin_session: Callable[[str], Awaitable[None]]) -> None:
        """Go on with runs that dead fleets left, until cancelled. Call it once agents answer.

        ``begin_session`` is as for ``Takeover``.
        """
        if self.ledger is not None:
            from .takeover import Takeover

            self._takeover = Takeover(self.ledger, self._kernel, self._hub, self.tasks, begin_session)
            await self._takeover.watch()

    def _report(self) -> LifeReport:
        """What this fleet says of itself in the list of replicas."""
        taken_over = self._takeover.taken_over if self._takeover is not None else 0
        return LifeReport(_ALIVE.get(self._state(), "draining"), len(self._kernel.in_flight), taken_over)

    def _drain(self, asked_by: str) -> None:
        """Have this process drain and end: an operator asked for it through another replica."""
        if self._end_process is None or self._asked_by or self._state() not in _ALIVE:
            return
        self._asked_by = one_line(asked_by, 20)
        text = f"this replica was asked to drain, through replica {self._asked_by}"
        log.info("%s", text)
        self._hub.publish(Notice(level="info", text=text))
        self._end_process()

    def _warn(self, text: str) -> None:
        log.warning("%s", text)
        self._hub.publish(Notice(level="warning", text=text))

    def _hear(self, worker: WorkerProcess, tasks: "Tasks") -> None:
        """Do what other processes ask of runs and tasks that this one has."""
        self._kernel.others = worker
        self._kernel.questions.others = worker
        worker.hear(ANSWER_QUESTION, self._kernel.questions.hear_note)
        worker.hear(CANCEL_RUN, self._cancel_here)
        worker.hear(CANCEL_TASK, tasks.cancel_here)

    def _cancel_here(self, run_id: str) -> None:
        if (run := self._kernel.in_flight.get(run_id)) is not None:
            run.cut()

    async def close(self, seconds: float = CLOSE_TIMEOUT, *, hand_over: bool = False) -> None:
        """Write pending data and close the database within ``seconds``. Safe to call twice.

        With ``hand_over`` runs that are left go on in another fleet.

        A database that does not answer is left as it is: the next start completes missing data.
        """
        ledger, self.ledger, self.threads = self.ledger, None, None
        parked, self.parked = self.parked, None
        if ledger is None:
            if parked is not None:
                await parked.close(seconds * RECORDS / 2)
            return
        began = monotonic()
        for waits in (self._kernel.keyed, self._kernel.nested):
            if waits is not None:
                await waits.close()
        self._kernel.keyed = self._kernel.nested = None
        if parked is not None:
            await parked.close(seconds * RECORDS / 2)
        await self._kernel.questions.close(seconds * RECORDS / 2)
        await self._kernel.close_records(seconds * RECORDS)
        task = asyncio.create_task(ledger.close(hand_over=hand_over), name="close the ledger")
        await asyncio.wait({task}, timeout=max(0.0, began + seconds - monotonic()))
        if not task.done():
            task.cancel()  # and not waited for: it may have to wait for the database for that as well
            log.warning(
                "%s does not answer and is abandoned: the next start writes what is missing",
                ledger.shown,
            )
        elif (error := task.exception()) is not None:
            log.error("the ledger could not be closed", exc_info=error)


def url_of(project: Project) -> str:
    """The database of a project that is served, as its files and the environment say."""
    return database_url_of(project, os.environ)


_salts: Final[list[bytes]] = []


def _same_principals(salt: bytes) -> None:
    """Keep unchecked tokens the same principals after a restart.

    Of several fleets in a process the first decides: another salt would make its callers other principals.
    """
    if not _salts:
        _salts.append(salt)
        adopt_salt(salt)


def _imported() -> tuple[Any, Any, Any]:
    names = ("pallas.ledger.ledger", "pallas.sessions.thread_access", "pallas.tasks")
    ledgers, threads, tasks = (importlib.import_module(name) for name in names)
    return ledgers, threads, tasks
