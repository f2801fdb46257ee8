"""Backends of models: one that a test plays itself, with a clock of its own, and HTTP servers that fail."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from pallas.config import Project
from pallas.config.kinds import BackendConfig, LlmRouting
from pallas.invocation import Completer, Completion, LLMResponse
from pallas.llm.llm_service import LlmService
from pallas.llm.provider_port import ModelAnswer
from pallas.llm.question import CompletionRequest
from pallas.model import BackendChosen, Event, Fault, FaultType, Params
from pallas.surfaces.listener import Listener, bind

OK = ModelAnswer("fine", "m-1", tokens_in=30, tokens_out=20)
"""What a backend answers that nobody told otherwise."""


def backend(id: str = "one", *models: str, **more: Any) -> BackendConfig:  # noqa: A002 - as it is called
    """A backend of models that begin with ``m``, as it stands under ``llm.backends``."""
    return BackendConfig(id, more.pop("provider", "generic"), models or ("m",), **more)


def project(*backends: BackendConfig, root: Path = Path("/project"), **routing: Any) -> Project:
    """A project with these backends, whose own model is ``m-1``."""
    more = {key: routing.pop(key) for key in ("settings", "provider", "model") if key in routing}
    llm = LlmRouting(backends=backends, **routing)
    given: dict[str, Any] = {"provider": "generic", "model": "m-1", **more}
    return Project(root=root, agents_file=root / "agents.yaml", name="demo", agents={}, llm=llm, **given)


def failure(
    kind: FaultType = FaultType.UPSTREAM, *, status: int = 0, retryable: bool = True, **data: Any
) -> Fault:
    """What a backend's provider fails with."""
    more = {**data, "status": status} if status else data
    return Fault(
        kind, f"backend: HTTP {status}" if status else "backend: gone", retryable=retryable, data=more
    )


@dataclass
class Time:
    """A clock that goes on only while somebody sleeps, or is told to; ``slept`` are the waits."""

    now: float = 1_000.0
    slept: list[float] = field(default_factory=list)

    def clock(self) -> float:
        """Seconds."""
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Go on at once."""
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


type Play = Callable[[CompletionRequest], ModelAnswer | Fault | asyncio.Event]


@dataclass
class Played:
    """Backends that answer as a test says: by id what each does in turn, the last again and again."""

    does: dict[str, list[ModelAnswer | Fault | asyncio.Event]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    questions: list[CompletionRequest] = field(default_factory=list)
    params: list[Params] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    async def provider(self, config: BackendConfig, project: Project) -> "_Player":
        """As the port has it."""
        self.made.append(config.id)
        return _Player(self, config.id)

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class _Player:
    all: Played
    id: str

    async def ask(self, model: str, question: CompletionRequest, params: Params) -> ModelAnswer:
        self.all.asked.append(self.id)
        self.all.questions.append(question)
        self.all.params.append(params)
        line = self.all.does.get(self.id, [OK])
        what = line.pop(0) if len(line) > 1 else line[0]
        if isinstance(what, asyncio.Event):
            await what.wait()
            return OK
        if isinstance(what, Fault):
            raise type(what)(what.type, what.message, retryable=what.retryable, data=what.data)
        return what


@dataclass
class Desk:
    """A service, what its backends play, and what was heard of it."""

    service: LlmService
    played: Played
    time: Time
    events: list[Event] = field(default_factory=list)
    notices: list[Event] = field(default_factory=list)

    def completer(self, agent: str = "adder", thread: str = "t", **more: Any) -> Completer:
        """For one message."""
        return self.service.completer(agent=agent, thread=thread, run_id="r", emit=self.events.append, **more)

    async def ask(self, text: str = "hello", model: str = "", **more: Any) -> LLMResponse:
        """Ask as a handler does; Raises Fault."""
        params = more.pop("params", {})
        wanted = Completion(model, [{"role": "user", "content": text}], params)
        return await self.completer(**more).complete(wanted)

    def chosen(self) -> list[tuple[str, str]]:
        """Each backend that was asked, with how it ended."""
        return [
            (each.backend, each.outcome)
            for each in self.events
            if isinstance(each, BackendChosen) and each.outcome
        ]


def desk(found: Project | Callable[[], Project], **does: list[Any]) -> Desk:
    """A service of a project whose backends are played."""
    played, time, notices = Played(dict(does)), Time(), list[Event]()
    service = LlmService(
        found if callable(found) else lambda: found,
        notices.append,
        providers=played,
        clock=time.clock,
        sleep=time.sleep,
    )
    return Desk(service, played, time, notices=notices)


@dataclass
class Server:
    """Chat completions over HTTP that answer as a test says, each in turn, the last again and again.

    A number is a status, a tuple a status with headers, an Event something to wait for, text an answer, bytes
    what is none; None breaks off in the middle of one.
    """

    does: list[int | tuple[int, dict[str, str]] | str | bytes | asyncio.Event | None]
    base: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    active: int = 0
    most: int = 0
    gone: int = 0

    async def complete(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        self.bodies.append(json.loads(await request.body()))
        self.headers.append(dict(request.headers))
        what = self.does.pop(0) if len(self.does) > 1 else self.does[0]
        if isinstance(what, int):
            what = (what, {})
        if isinstance(what, tuple):
            status, headers = what
            error = {"error": {"message": f"status {status}", "type": "x", "code": None}}
            return JSONResponse(error, status, headers)
        if isinstance(what, bytes):
            return Response(what, media_type="text/event-stream")
        return StreamingResponse(self._stream(what), media_type="text/event-stream")

    async def _stream(self, what: str | asyncio.Event | None) -> AsyncIterator[str]:
        self.active += 1
        self.most = max(self.most, self.active)
        try:
            if isinstance(what, asyncio.Event):
                await what.wait()
                what = "at last"
            for number, line in enumerate(_lines(what or "half")):
                if what is None and number == 2:
                    raise ConnectionError("the server goes away")
                yield line
        except asyncio.CancelledError:
            self.gone += 1
            raise
        finally:
            self.active -= 1


def _lines(text: str) -> Iterator[str]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for delta, finish in (({"role": "assistant"}, None), ({"content": text}, None), ({}, "stop")):
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        yield f"data: {json.dumps({**head, 'choices': choices})}\n\n"
    usage = {"prompt_tokens": 30, "completion_tokens": 20, "total_tokens": 50}
    yield f"data: {json.dumps({**head, 'choices': [], 'usage': usage})}\n\n"
    yield "data: [DONE]\n\n"


@asynccontextmanager
async def servers(*does: Sequence[Any]) -> AsyncIterator[tuple[Server, ...]]:
    """One server for each list, on free ports of this loop; ``base`` ends in ``/v1``."""
    running, listeners = [Server(list(each)) for each in does], []
    try:
        for server in running:
            app = Starlette(routes=[Route("/v1/chat/completions", server.complete, methods=["POST"])])
            listener = Listener(app, bind("127.0.0.1", 0, "backend"))
            await listener.start()
            listeners.append(listener)
            server.base = f"http://127.0.0.1:{listener.port}/v1"
        yield tuple(running)
    finally:
        for listener in listeners:
            await listener.stop()
