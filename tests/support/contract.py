"""What answers behind each kind of executor in the contract of executors: the same words, five ways.

A message's first word says what is done: ``wait`` says "so far" and goes on until it is cancelled, ``fail``
fails, ``hostile`` answers what drives a terminal, ``picture`` how many pictures came and of which kind,
``pieces`` three pieces of text. All else is answered with how many messages of the conversation there were.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from pallas.config import AgentConfig, Project, load_project
from pallas.config.kinds import HandlerConfig, PumpLimits, RemoteConfig, TypedConfig, WorkerConfig
from pallas.executors import Executor, ExecutorTurn, TurnResult
from pallas.executors.project_imports import forget
from pallas.executors.remote.endpoint_watch import WatchIntervals
from pallas.executors.remote.remote_executor import RemoteExecutor
from pallas.executors.typed.typed_executor import TypedExecutor
from pallas.fleet.agent_factory import make_executor
from pallas.fleet.fleet import Fleet
from pallas.handlers import Chunk, Final, PromptRequest, PromptResult, Registered, Usage
from pallas.messaging.delivery import First, MessageDelivery
from pallas.messaging.messaging_port import Emit, HandlerEndpoint, MessageSender, PeerFacts
from pallas.model import ANONYMOUS, Event, Message, Principal, RunRequest, RunResult
from pallas.model import Usage as RunUsage
from pallas.payloads import Payload
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

from .executors import FakeAgent
from .live import agent_module, write_project
from .ports import free_ports
from .project_modules import module_at, own_modules
from .scripted import model
from .waiting import until

OFTEN = WatchIntervals(every=0.5, again=0.2)
HOSTILE = "red\x1b[31m and \u202e back"
SCRIPT = """
    rules:
      - when: {regex: '^wait'}
        say: "so far MORE"
        pace: 0.1
      - when: {regex: '^fail'}
        error: {status: 400, message: kaput}
      - when: {regex: '^hostile'}
        say: "red\\e[31m and \\u202e back"
      - when: {regex: '^picture'}
        say: "{{ image.count }} picture: image/{{ image.kind }}"
      - when: {regex: '^pieces'}
        say: "one two three"
      - say: "{{ turns }}:{{ user }}"
""".replace("MORE", "and on " * 180)


class Words:
    """The handler; ``busy`` is how many questions it works at, ``failed`` tells what it raises."""

    id = "words"
    vision = True

    def __init__(self) -> None:
        self.busy = 0

    async def stream(self, request: PromptRequest) -> AsyncIterator[Chunk | Final]:
        """As the module says."""
        self.busy += 1
        try:
            match request.text.split()[0]:
                case "wait":
                    yield Chunk("so far ")
                    await asyncio.Event().wait()
                case "fail":
                    raise ValueError("kaput")
                case "hostile":
                    yield Chunk(HOSTILE)
                case "picture":
                    kinds = [image.mime_type for image in request.images]
                    yield Chunk(f"{len(kinds)} picture: {' '.join(kinds)}")
                case "pieces":
                    for index, piece in enumerate(("one ", "two ", "three")):
                        yield Chunk(piece, index)
                case _:
                    turns = 1 + sum(message.role == "user" for message in request.history)
                    yield Final(PromptResult(f"{turns}:{request.text}", usage=Usage(7, 2)))
        finally:
            self.busy -= 1


class Kind(Protocol):
    """Makes the executor of one kind, and whatever answers behind it, for as long as the block lasts."""

    def __call__(self, root: Path) -> Any: ...


@dataclass
class Subject:
    """An executor that is started, and its other side: ``busy`` questions are worked at there.

    ``break_it`` makes it fail by itself, None where it never does; ``again`` makes one more on the same other
    side, neither loaded nor started.
    """

    kind: str
    executor: Executor
    busy: Callable[[], int]
    again: Callable[[], Awaitable[Executor]]
    break_it: Callable[[Executor], Awaitable[None]] | None = None
    turns: int = 0

    async def say(
        self,
        text: str,
        talk: "Talk | None" = None,
        executor: Executor | None = None,
        hear: Callable[[Event], None] = lambda event: None,
        **more: Any,
    ) -> TurnResult:
        """One turn through the plain protocol, in a conversation or in none."""
        self.turns += 1
        talk = talk or Talk(None)
        turn = ExecutorTurn(
            f"r{self.turns}",
            "words",
            text,
            lease=talk.lease,
            thread=talk.lease or "",
            history=talk.history,
            **more,
        )
        result = await (executor or self.executor).run(turn, hear)
        talk.history = (*talk.history, *result.messages)
        return result

    def kernel(self, **more: Any) -> "Asked":
        """A kernel that asks it."""
        hub = EventHub()
        kernel = Kernel(hub)
        kernel.attach(FakeAgent(self.executor, name="words", **more))
        return Asked(kernel)


@dataclass
class Talk:
    """A conversation as a kernel keeps it."""

    lease: str | None
    history: tuple[Message, ...] = ()


@dataclass
class Asked:
    """A kernel with the one agent ``words``; ``events`` are those of its runs."""

    kernel: Kernel
    events: list[Event] = field(default_factory=list)

    async def run(self, text: str, **more: Any) -> RunResult:
        """A run. Raises Fault."""
        return await self.kernel.run(RunRequest("words", text, **more), self.events.append)


@asynccontextmanager
async def fastagent(root: Path) -> AsyncIterator[Subject]:
    """An agent of fast-agent, on the scripted model over HTTP."""
    argv, before = sys.argv, Path.cwd()
    sys.argv = ["pallas"]
    _folder(root)
    try:
        async with model(root, SCRIPT) as served:
            write_project(
                root,
                {"words": agent_module("words")},
                keys={"words": {"model_capabilities": {"vision": True}}},
                config={
                    "default_model": "generic.scripted",
                    "generic": {"base_url": served.url, "api_key": "offline"},
                },
            )
            project = load_project(root, {**os.environ})
            os.chdir(root)
            with own_modules(root):
                async with started(
                    "fastagent",
                    project,
                    project.agents["words"],
                    busy=lambda: served.record.active,
                    break_it=_break_harness,
                ) as subject:
                    yield subject
    finally:
        forget(root)
        os.chdir(before)
        sys.argv = argv


async def _break_harness(executor: Any) -> None:
    for _ in range(2):  # it may find out in two ways
        executor._fell(RuntimeError("a harness broke"))


@asynccontextmanager
async def worker(root: Path) -> AsyncIterator[Subject]:
    """A program of ours that speaks the Agent Client Protocol."""
    log = _folder(root / "work") / "log"
    log.write_text("", "utf-8")
    program = Path(__file__).with_name("contract_worker.py")
    config = WorkerConfig(("python", str(program)), root, {"CONTRACT_LOG": str(log)})

    def busy() -> int:
        said = log.read_text("utf-8")
        return said.count("+") - said.count("-")

    async def kill(executor: Executor) -> None:
        assert executor.pid is not None
        os.kill(executor.pid, signal.SIGKILL)

    own = AgentConfig("words", 0, "Words", "Words.", kind="worker", worker=config)
    async with started("worker", _project(root, own), own, busy=busy, break_it=kill) as subject:
        yield subject


@asynccontextmanager
async def remote(root: Path) -> AsyncIterator[Subject]:
    """An agent of another fleet, over MCP."""
    words = Words()
    there = Project(_folder(root), root / "agents.yaml", "other", {}, registry_port=free_ports(1)[0])
    other = Fleet(there, dev=True)
    other.register(words)
    try:
        await other.start()
        (agent,) = other.agents
        own = AgentConfig("words", 0, "Words", "Words.", kind="remote", remote=RemoteConfig(agent.url))

        async def go(executor: Executor) -> None:
            await other.stop()

        project = _project(root, own)

        async def make() -> Executor:
            return RemoteExecutor(project, own, pace=OFTEN)

        made = started("remote", project, own, make=make, busy=lambda: words.busy, break_it=go)
        async with made as subject:
            yield subject
    finally:
        await other.stop()


@asynccontextmanager
async def typed(root: Path) -> AsyncIterator[Subject]:
    """A typed handler in this process, with a pump that knows nobody else."""
    _folder(root)
    (root / "typed_words.py").write_text(TYPED, "utf-8")
    config = HandlerConfig("typed_words:words", typed=TypedConfig("typed_words:Word", timeout=60.0))
    own = AgentConfig("words", 0, "Words", "Words.", kind="handler", handler=config)
    project = _project(root, own)

    async def make() -> Executor:
        ground = _Ground()
        ground.endpoint = executor = TypedExecutor(project, own, ground)
        return executor

    try:
        with own_modules(root):
            async with started(
                "typed", project, own, make=make, busy=lambda: len(module_at(root, "typed_words").busy)
            ) as subject:
                yield subject
    finally:
        forget(root)


TYPED = """
import asyncio
from collections import Counter
from dataclasses import dataclass

from pallas.contract import HandlerResponse

turns, busy = Counter(), set()


@dataclass
class Word:
    text: str


async def words(payload, metadata):
    busy.add(task := asyncio.current_task())
    try:
        first = payload.text.split()[0]
        if first == "wait":
            await asyncio.Event().wait()
        if first == "fail":
            raise ValueError("kaput")
        turns[metadata.thread_id] += 1
        # No message can carry an escape: XML has none.
        said = {"hostile": "red and \\u202e back", "pieces": "one two three"}.get(first)
        return HandlerResponse.respond(Word(said or f"{turns[metadata.thread_id]}:{payload.text}"))
    finally:
        busy.discard(task)
"""


class _Ground:
    """A fleet of one typed handler: as its executor sees it, and as the pump does."""

    limits = PumpLimits()
    project = "test"
    agents = 1

    def __init__(self) -> None:
        self.endpoint: HandlerEndpoint | None = None
        self._pump = MessageDelivery(self)

    async def exchange(self, first: First, emit: Emit) -> Payload | None:
        """As ``MessagingPort``; the rest as ``pallas.messaging.messaging_port.MessagingPeers``."""
        return await self._pump.exchange(first, emit)

    def principal(self, run_id: str) -> Principal:
        """Nobody."""
        return ANONYMOUS

    def used(self, run_id: str) -> RunUsage:
        """No models."""
        return RunUsage()

    def at_once(self, agent: str) -> int:
        """As for any handler."""
        return self.limits.per_agent

    def endpoints(self, name: str) -> tuple[HandlerEndpoint, ...]:
        """The one."""
        return (self.endpoint,) if self.endpoint is not None and name == "words" else ()

    def takers(self, key: str) -> tuple[HandlerEndpoint, ...]:
        """None: nothing is started here."""
        return ()

    def knows(self, name: str) -> bool:
        """Nobody else."""
        return False

    def facts(self, names: Sequence[str]) -> tuple[PeerFacts, ...]:
        """Nobody else."""
        return ()

    async def ask(self, agent: str, text: str, asker: MessageSender, **more: Any) -> RunResult:
        """Nobody else."""
        raise AssertionError(agent)

    def completer(self, asker: MessageSender, agent: str, thread: str, emit: Emit) -> None:
        """No models."""


@asynccontextmanager
async def handler(root: Path) -> AsyncIterator[Subject]:
    """A handler in this process."""
    words = Words()
    _folder(root)
    registered = HandlerConfig(registered=Registered(words))
    own = AgentConfig("words", 0, "Words", "Words.", kind="handler", handler=registered)
    async with started("handler", _project(root, own), own, busy=lambda: words.busy) as subject:
        yield subject


def _folder(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    return root


def _project(root: Path, config: AgentConfig) -> Project:
    return Project(root, root / "agents.yaml", "test", {"words": config})


@asynccontextmanager
async def started(
    kind: str,
    project: Project,
    config: AgentConfig,
    *,
    make: Callable[[], Awaitable[Executor]] | None = None,
    **more: Any,
) -> AsyncIterator[Subject]:
    """The executor that a fleet would make of it, started, closed at the end."""
    config = replace(config, name="words")

    async def again() -> Executor:
        return await (make() if make is not None else make_executor(project, config))

    executor = await again()
    try:
        await executor.load()
        await executor.start()
        yield Subject(kind, executor, again=again, **more)
    finally:
        await executor.close(3.0)


KINDS: dict[str, Kind] = {
    "fastagent": fastagent,
    "worker": worker,
    "remote": remote,
    "handler": handler,
    "typed": typed,
}


async def idle(subject: Subject) -> None:
    """Until nothing is worked at on the other side."""
    await until(lambda: subject.busy() == 0)
