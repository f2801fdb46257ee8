"""The fleet's storage. Opens the ledger at startup and closes it after the last run."""

import asyncio
import importlib
import logging
import os
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from pallas.access.grants import Grants
from pallas.config import Project
from pallas.config.database import MEMORY
from pallas.config.kinds import TasksConfig
from pallas.ledger import database_url_of
from pallas.model import Fault, Notice
from pallas.model.fingerprint import adopt_salt
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

if TYPE_CHECKING:
    from pallas.ledger import Ledger
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

log = logging.getLogger(__name__)

CLOSE_TIMEOUT: Final = 3.0
RECORDS: Final = 0.5
"""The share of the time that a close has in which runs write down how they ended."""


class Storage:
    """The ledger of one fleet, its threads and its tasks. Belongs to the fleet's loop.

    ``url`` is that of the database, None for a fleet without one. ``tasks`` gives the limits of tasks as they
    are now, ``stopping`` whether the fleet ends.
    """

    def __init__(
        self,
        url: str | None,
        *,
        kernel: Kernel,
        hub: EventHub,
        grants: Callable[[], Grants],
        tasks: Callable[[], TasksConfig] = TasksConfig,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._url = url
        self._limits = tasks
        self._stopping = stopping
        self._kernel = kernel
        self._hub = hub
        self._grants = grants
        self.ledger: Ledger | None = None
        self.threads: Threads | None = None
        self.tasks: Tasks | None = None

    async def open(self, project: Project) -> None:
        """Open the database, migrate its tables, and mark runs that an earlier process left pending.

        If the database is the usual file and cannot be opened, conversations stay in memory, and a Notice
        reports that. Raises Fault (CONFIG) if the project or the environment names the database.
        """
        if self._url is None:
            return
        ledgers, threads, tasks = await asyncio.to_thread(_imported)
        url = self._url
        try:
            self.ledger = await ledgers.open_ledger(url)
        except Fault as fault:
            if project.database_url or os.environ.get("PALLAS_DATABASE_URL"):
                raise
            text = f"{fault.message}; until then conversations are kept in memory and end with the fleet"
            log.error("%s", text)
            self._hub.publish(Notice(level="error", text=text))
            url = MEMORY
            self.ledger = await ledgers.open_ledger(url)
        ledger = self.ledger
        assert ledger is not None
        _same_principals(ledger.salt)
        self._kernel.use_ledger(ledger)
        self.threads = threads.Threads(
            ledger, self._grants(), self._kernel.forget_thread, self._kernel.unwritten
        )
        if url != MEMORY:  # a handle that ends with the fleet would be no durable one
            self.tasks = tasks.Tasks(
                ledger,
                self._kernel,
                self._hub,
                self._grants(),
                config=self._limits,
                stopping=self._stopping,
            )
        if found := len(ledger.recovered):
            runs = "1 run" if found == 1 else f"{found} runs"
            text = f"{runs} had not ended when the fleet last stopped; the threads say so and go on"
            log.warning("%s", text)
            self._hub.publish(Notice(level="warning", text=text))

    async def close(self, seconds: float = CLOSE_TIMEOUT) -> None:
        """Write pending data and close the database within ``seconds``. Safe to call twice.

        A database that does not answer is left as it is: the next start completes missing data.
        """
        ledger, self.ledger, self.threads = self.ledger, None, None
        if ledger is None:
            return
        began = monotonic()
        tasks, self.tasks = self.tasks, None
        if tasks is not None:
            await tasks.close(seconds * RECORDS / 2)
        await self._kernel.close_records(seconds * RECORDS)
        task = asyncio.create_task(ledger.close(), name="close the ledger")
        await asyncio.wait({task}, timeout=max(0.0, began + seconds - monotonic()))
        if not task.done():
            task.cancel()  # and not waited for: it may have to wait for the database for that as well
            log.warning(
                "%s does not answer and is left: what it was not told is put right by the next start",
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
