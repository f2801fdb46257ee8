"""The API of a project whose fleet does not run: over its ledger, in this process, with nothing started."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import time
from typing import TYPE_CHECKING, Any, Final

from pallas.client import FleetAddress, NoFleetAnswers, RestClient
from pallas.config import Project
from pallas.config.agent_code import choice_of, model_of
from pallas.model import FleetSnapshot, FleetState, Principal

if TYPE_CHECKING:
    from pallas.ledger import Ledger

_BASE: Final = "http://127.0.0.1/api/v1"


class OfflineApi(RestClient):
    """Sends requests to an application in this process instead of a remote fleet."""

    def __init__(self, place: FleetAddress, app: Any) -> None:
        import httpx2

        super().__init__(place)
        self._elsewhere = self._http
        self._http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=_BASE)
        self.own = True

    async def close(self) -> None:
        """Shut it down."""
        await super().close()
        await self._elsewhere.aclose()


@dataclass(frozen=True, slots=True)
class _Asleep:
    """A stopped fleet, as the catalog sees it: agents start with the fleet."""

    files: Project
    read: dict[str, tuple[str, str]] = field(default_factory=dict)
    """What was read in the files of agents, by name: the model, and the agent that they serve."""

    async def update(self) -> None: ...
    async def remove(self, name: str) -> None: ...
    def removed(self, name: str) -> None: ...

    def status(self, name: str) -> Mapping[str, Any]:
        agent = self.files.agents.get(name)
        if agent is None:
            return {}
        if name not in self.read:
            choice = choice_of(self.files.root, agent)
            self.read[name] = model_of(self.files, agent), choice[0].name if choice else ""
        model, serves = self.read[name]
        return {"kind": agent.kind, "capabilities": agent.capabilities, "model": model, "serves": serves}

    def shadow(self, name: str) -> str:
        slug = name.replace("_", "-")
        return next((str(each.where) for each in self.files.agents.values() if each.slug == slug), "")


@asynccontextmanager
async def offline(project: Project, place: FleetAddress) -> AsyncIterator[RestClient]:
    """Open the API over a project's ledger. A user who may read its database may do everything.

    Raises NoFleetAnswers for a project without storage, and what the ledger and the secrets' key raise.
    """
    from pallas.config.database import MEMORY
    from pallas.ledger import database_url_of
    from pallas.telemetry.log import close_logging, redact_project, setup_logging

    url = database_url_of(project, os.environ)
    if url == MEMORY:
        raise NoFleetAnswers(f"no fleet of {project.name} runs, and it keeps nothing (database_url: memory)")
    async with AsyncExitStack() as stack:
        setup_logging(project.log_level, stderr=False, project=project.root)
        stack.callback(close_logging)
        redact_project(project)
        app = await _app(project, url, stack)
        api = OfflineApi(place, app)
        stack.push_async_callback(api.close)
        yield api


async def _app(project: Project, url: str, stack: AsyncExitStack) -> Any:
    """Return the REST API, with a kernel that has no agents."""
    from pallas.access.grants import Grants
    from pallas.catalog import Catalog
    from pallas.catalog.secret_seal import seal_of
    from pallas.ledger import open_ledger
    from pallas.ledger.ledger_address import default_path
    from pallas.limits.spending import Spending
    from pallas.model.grant_rules import CONTROL_FULL
    from pallas.runs.kernel import Kernel
    from pallas.sessions.thread_access import Threads
    from pallas.surfaces.rest.rest_app import RestParts, rest_app
    from pallas.tasks import Tasks
    from pallas.telemetry.event_hub import EventHub

    ledger: Ledger = await open_ledger(url)
    stack.push_async_callback(ledger.close)
    await ledger.inherit()
    seal = await asyncio.to_thread(seal_of, os.environ, default_path(project).parent)
    catalog = Catalog(ledger.resources, seal, _Asleep(project))
    await catalog.start()
    stack.callback(catalog.close)
    grants, hub = Grants(), EventHub()
    kernel = Kernel(hub)
    kernel.step_reader.ledger = ledger
    kernel.questions.records = ledger.questions
    kernel.spending = Spending(project.limits_for)
    kernel.spending.use_ledger(ledger.spending)
    snapshot = FleetSnapshot(project.name, FleetState.STOPPED, time(), "")
    rest = rest_app(
        RestParts(
            kernel=kernel,
            threads=Threads(ledger, grants),
            catalog=catalog,
            grants=grants,
            authenticate=lambda scope: Principal(CONTROL_FULL),
            project=lambda: project,
            snapshot=lambda: snapshot,
            ledger=ledger,
            tasks=Tasks(ledger.tasks, kernel, hub, grants),
        )
    )
    stack.push_async_callback(rest.close)

    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await rest({**scope, "root_path": "/api/v1"}, receive, send)

    return mounted
