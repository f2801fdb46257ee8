"""Remote agents under test: the executor on a URL, turns for it, and other sides that do as a test says."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastmcp import Context, FastMCP
from starlette.types import ASGIApp, Receive, Scope, Send

from pallas.config.kinds import RemoteConfig
from pallas.config.models import AgentConfig
from pallas.executors import ExecutorTurn, TurnResult
from pallas.executors.remote.endpoint_watch import PACE, WatchIntervals
from pallas.executors.remote.remote_executor import RemoteExecutor
from pallas.model import Event, Message
from pallas.surfaces.listener import Listener, bind

from .dials import Dials
from .live import write_project
from .ports import free_ports

QUICK = WatchIntervals(every=0.02, again=0.02, look=2.0, connect=5.0)
"""For tests of what is noticed."""


@dataclass
class Other(Dials):
    """A FastMCP server whose one tool ``ask`` answers ``QUESTION?``; ``heard`` are the questions.

    A question ``wait`` is answered when ``open`` is set; ``cancelled`` is set when its caller goes.
    ``bearers`` are the Authorization headers of all requests, ``teams`` their x-team headers, ``era`` and the
    other dials as there.
    """

    heard: list[str] = field(default_factory=list)
    handles: list[str] = field(default_factory=list)
    bearers: list[str] = field(default_factory=list)
    teams: list[str] = field(default_factory=list)
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    with_handle: bool = False

    async def come(self) -> None:
        """Listen, on the port of the last time if there was one."""
        self.port = self.port or free_ports(1)[0]
        sock = bind("127.0.0.1", self.port, "other")
        self._listener = Listener(self._noting(self._turned(self._made().http_app(path="/mcp"))), sock)
        await self._listener.start()

    async def _answer(self, question: str, context: Context) -> str:
        self.heard.append(question)
        await context.report_progress(1, None, "desk/look: started")
        await context.report_progress(2, 2, "desk/look: completed")
        if question.endswith("wait"):
            self.reached.set()
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if question.endswith("fail"):
            raise ValueError("kaput \x1b[31m")
        return f"{question}?"

    def _made(self) -> FastMCP:
        server: FastMCP = FastMCP("other")
        if self.with_handle:

            @server.tool(name="ask")
            async def ask_in(question: str, context: Context, thread_ref: str = "") -> str:
                """Ask within a conversation."""
                self.handles.append(thread_ref)
                return await self._answer(question, context)

        else:

            @server.tool
            async def ask(question: str, context: Context) -> str:
                """Ask anything."""
                return await self._answer(question, context)

        return server

    def _noting(self, app: ASGIApp) -> ASGIApp:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                headers = dict(scope["headers"])
                self.bearers.append(headers.get(b"authorization", b"").decode())
                self.teams.append(headers.get(b"x-team", b"").decode())
            await app(scope, receive, send)

        return serve


@asynccontextmanager
async def other(**dials: Any) -> AsyncIterator[Other]:
    """Such a server, gone at the end."""
    server = Other(**dials)
    await server.come()
    try:
        yield server
    finally:
        server.open.set()
        await server.go()


def remote_config(url: str, name: str = "far", **more: Any) -> AgentConfig:
    """The configuration of a remote agent; ``more`` are keys of ``RemoteConfig``."""
    return AgentConfig(name, 0, name.title(), f"{name}.", kind="remote", remote=RemoteConfig(url, **more))


def with_remote(root: Path, url: str, **keys: Any) -> Path:
    """A project whose one agent ``far`` is at that URL; ``keys`` are of its entry in agents.yaml."""
    entry = {"module": None, "kind": "remote", "url": url, **keys}
    return write_project(root, {"far": None}, keys={"far": entry})


@asynccontextmanager
async def remote(
    url: str, *, pace: WatchIntervals = PACE, start: bool = True, **more: Any
) -> AsyncIterator[RemoteExecutor]:
    """The executor of a remote agent ``far``, started, closed at the end."""
    project: Any = None  # it asks nothing of its project
    executor = RemoteExecutor(project, remote_config(url, **more), pace=pace)
    try:
        await executor.load()
        if start:
            await executor.start()
        yield executor
    finally:
        await executor.close(3.0)


@dataclass
class Talk:
    """A conversation of ours with it: keeps the history as the kernel would, and the events of each turn."""

    executor: RemoteExecutor
    lease: str | None = "id:one"
    history: tuple[Message, ...] = ()
    events: list[Event] = field(default_factory=list)
    turns: int = 0

    async def say(self, text: str, **more: Any) -> TurnResult:
        """One turn."""
        self.turns += 1
        run_id = f"r{self.turns}"
        turn = ExecutorTurn(run_id, "far", text, lease=self.lease, history=self.history, **more)
        result = await self.executor.run(turn, self.events.append)
        self.history = (*self.history, *result.messages)
        return result

    def heard[Kind: Event](self, kind: type[Kind]) -> Sequence[Kind]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]
