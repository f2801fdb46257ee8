"""Tasks as callers see them: an agent on a port that does as a test says, and a client that knows the
extension."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from starlette.types import ASGIApp

from pallas.access.grants import Grants
from pallas.config.kinds import TasksConfig
from pallas.ledger import Ledger
from pallas.model import Health, HealthStatus
from pallas.runs.kernel import Kernel
from pallas.surfaces.agent_access import Authorize
from pallas.surfaces.agent_mcp import agent_app, endpoint
from pallas.surfaces.listener import Listener, bind
from pallas.tasks import Tasks
from pallas.telemetry.event_hub import EventHub

from .executors import Answer, FakeAgent, FakeExecutor, echo
from .waiting import poll

ERA = "2026-07-28"
EXTENSION = "io.modelcontextprotocol/tasks"
OVER = ("completed", "failed", "cancelled")
LOCAL = ("127.0.0.1", "localhost")


@dataclass
class Working:
    """The agent ``echo`` at ``url``, and ``other`` beside it, with tasks."""

    url: str
    other: str
    kernel: Kernel
    tasks: Tasks
    hub: EventHub


@asynccontextmanager
async def working(
    ledger: Ledger,
    answer: Answer = echo,
    config: TasksConfig | None = None,
    authorize: Authorize | None = None,
) -> AsyncIterator[Working]:
    """One life of a small fleet on that ledger."""
    hub, limits = EventHub(), config or TasksConfig()
    kernel = Kernel(hub)
    kernel.use_ledger(ledger)
    ending: list[bool] = []
    tasks = Tasks(ledger.tasks, kernel, hub, Grants(), config=lambda: limits, stopping=lambda: bool(ending))

    async def health() -> Health:
        return Health(HealthStatus.OK)

    listeners, urls = [], []
    for name in ("echo", "other"):
        kernel.attach(FakeAgent(FakeExecutor(answer), name))
        server = agent_app(
            kernel,
            name,
            description="says it again",
            health=health,
            authorize=authorize,
            tasks=lambda: tasks,
        )
        app: ASGIApp = endpoint(server, LOCAL)
        socket = bind("127.0.0.1", 0, "test")
        urls.append(f"http://127.0.0.1:{socket.getsockname()[1]}/mcp")
        listener = Listener(app, socket)
        await listener.start()
        listeners.append(listener)
    try:
        yield Working(urls[0], urls[1], kernel, tasks, hub)
    finally:
        ending.append(True)
        await kernel.close(0.1)
        await tasks.close()
        await kernel.close_records()
        for listener in listeners:
            await listener.stop(0.1)


class TaskClient:
    """JSON-RPC of the newer era, a request each; ``declares`` says on each that it knows tasks."""

    def __init__(
        self, url: str, *, bearer: str | None = None, declares: bool = True, answers: bool = False
    ) -> None:
        self._url = url
        self._bearer = bearer
        self._capabilities: dict[str, Any] = {"extensions": {EXTENSION: {}}} if declares else {}
        if answers:
            self._capabilities["elicitation"] = {"form": {}}

    async def ask(self, method: str, of: str = "", /, **params: Any) -> dict[str, Any]:
        """The JSON-RPC response; ``of`` goes into ``Mcp-Name``."""
        meta = "io.modelcontextprotocol"
        params["_meta"] = {
            f"{meta}/protocolVersion": ERA,
            f"{meta}/clientInfo": {"name": "raw", "version": "1"},
            f"{meta}/clientCapabilities": self._capabilities,
        }
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": ERA,
            "mcp-method": method,
            **({"mcp-name": of} if of else {}),
            **({"authorization": f"Bearer {self._bearer}"} if self._bearer else {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
            answer = await http.post(self._url, json=body, headers=headers)
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            lines = [line[5:] for line in answer.text.splitlines() if line.startswith("data:")]
            found = next(each for each in map(json.loads, lines) if "id" in each)
        else:
            found = answer.json()
        assert isinstance(found, dict)
        return found

    async def call(self, tool: str = "send_message", **arguments: Any) -> dict[str, Any]:
        """The result of a tool."""
        result: dict[str, Any] = (await self.ask("tools/call", tool, name=tool, arguments=arguments))[
            "result"
        ]
        return result

    async def get(self, task: str) -> dict[str, Any]:
        """A task as it is."""
        found: dict[str, Any] = (await self.ask("tasks/get", task, taskId=task))["result"]
        return found

    async def cancel(self, task: str) -> dict[str, Any]:
        """Ask for its end."""
        return await self.ask("tasks/cancel", task, taskId=task)

    async def answer(self, task: str, answers: Mapping[str, Any]) -> dict[str, Any]:
        """Answer its questions."""
        return await self.ask("tasks/update", task, taskId=task, inputResponses=dict(answers))

    async def until(self, task: str, *wanted: str) -> dict[str, Any]:
        """A task once it has one of these statuses, over where none is said."""
        return await self.told(task, lambda found: found["status"] in (wanted or OVER))

    async def told(self, task: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """A task once that is so."""
        return await poll(lambda: self.get(task), condition, timeout=30)
