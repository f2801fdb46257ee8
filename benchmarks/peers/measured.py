"""One server of the comparison while it runs."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import psutil

from ..load import Slice
from ..model_server import Counts, counts_of
from ..programs import free_ports, program
from .clients import Client
from .environments import ROOT
from .sides import Place, Side

QUESTION = "What does the next line of this file say, and why does it say so? "
FIRST_ANSWER = 120.0
"""Seconds until a server must have given its first answer."""
DEADLINE = 900.0
"""Seconds that any one measurement of one server may take."""
QUIET = {
    "AGNO_TELEMETRY": "false",
    "FASTMCP_CHECK_FOR_UPDATES": "off",
    "LANGSMITH_TRACING": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
}
"""No side sends anything to its maker."""


class SideError(Exception):
    """A side cannot be measured; the message is the reason in one line."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A slice of turns, and what the model server counted meanwhile."""

    turns: Slice
    model: Counts
    written: float
    """Bytes that the server gave to the disk."""


class Conversation:
    """One conversation of a client. Each answer proves that the model saw all turns before it."""

    def __init__(self, client: Client, side: Side) -> None:
        self._client = client
        self._side = side
        self._turns = 0
        self._first = 0

    async def turn(self) -> float:
        """Take a turn; returns its seconds. The first one begins the conversation."""
        began = perf_counter()
        if not self._turns:
            await self._client.begin()
        answer = await self._client.turn(QUESTION)
        taken = perf_counter() - began
        self.check(int(answer.rpartition(" ")[2]))
        return taken

    def check(self, messages: int) -> None:
        """Raise SideError unless the next turn's request has as many messages as it should."""
        self._first = self._first or messages
        wanted = self._first + 2 * self._turns * self._side.kept
        self._turns += 1
        if messages != wanted:
            raise SideError(f"the model got {messages} messages in turn {self._turns}, not {wanted}")


class Server:
    """A side's server process."""

    def __init__(self, side: Side, url: str, model: str, process: psutil.Process, output: Path) -> None:
        self.side = side
        self._url = url
        self._model = model
        self._process = process
        self._output = output
        self._began = perf_counter()

    def last_line(self) -> str:
        """What it printed last."""
        lines = self._output.read_text("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def processor(self) -> float:
        """Seconds of user and system time of the process and all below it, those that ended included."""
        taken = 0.0
        for each in self._tree():
            with suppress(psutil.NoSuchProcess):
                taken += sum(each.cpu_times()[:4])
        return taken

    def memory(self) -> float:
        """The proportional set size of the process and all below it, in MB."""
        return float(sum(each.memory_full_info().pss for each in self._tree())) / 1e6

    def written(self) -> int:
        """Bytes that the process and all below it have given to the disk."""
        return sum(each.io_counters().write_bytes for each in self._tree())

    def _tree(self) -> list[psutil.Process]:
        return [self._process, *self._process.children(recursive=True)]

    async def first_answer(self) -> float:
        """Wait until it answers a message; returns the seconds since it was started."""
        deadline = perf_counter() + FIRST_ANSWER
        while True:
            try:
                await self.sample(1, 1, 1)
                return perf_counter() - self._began
            except (OSError, EOFError, RuntimeError) as error:
                if self._process.status() == psutil.STATUS_ZOMBIE:
                    raise SideError("the server ended") from error
                if perf_counter() > deadline:
                    raise SideError(f"no answer in {FIRST_ANSWER:.0f} s: {error}") from error
            await asyncio.sleep(0.02)

    async def sample(self, callers: int, conversations: int, turns: int) -> Sample:
        """Let each caller have so many conversations of so many turns, one after the other."""
        measured = Slice()

        async def talk(client: Client) -> None:
            for _ in range(conversations):
                conversation = Conversation(client, self.side)
                for _ in range(turns):
                    measured.latencies.append(await conversation.turn())

        async with self._clients(callers) as clients:
            before = await counts_of(self._model)
            written = self.written()
            server, mine, began = self.processor(), process_time(), perf_counter()
            await _together(talk(client) for client in clients)
            measured.seconds = perf_counter() - began
            measured.callers = process_time() - mine
            measured.server = self.processor() - server
            after = await counts_of(self._model)
        counted = Counts(
            after.connections - before.connections,
            after.answers - before.answers,
            after.processor - before.processor,
        )
        if counted.answers != len(measured.latencies):
            raise SideError(f"{len(measured.latencies)} turns asked the model {counted.answers} times")
        return Sample(measured, counted, self.written() - written)

    async def first_and_last(self, callers: int, turns: int, window: int) -> tuple[float, float]:
        """Processor seconds of a turn among the first and among the last ``window`` of long conversations.

        Each caller has one conversation, and all take their turns at the same time.
        """
        marks = []
        async with self._clients(callers) as clients:
            conversations = [Conversation(client, self.side) for client in clients]
            for turn in range(turns):
                if turn in (0, window, turns - window):
                    marks.append(self.processor())
                await _together(each.turn() for each in conversations)
            marks.append(self.processor())
        first, last = marks[1] - marks[0], marks[3] - marks[2]
        return first / window / callers, last / window / callers

    @asynccontextmanager
    async def _clients(self, number: int) -> AsyncIterator[list[Client]]:
        async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.side.client(self._url)) for _ in range(number)]


async def _together(works: Iterable[Coroutine[object, object, object]]) -> None:
    """Wait for all; the first that fails ends the others."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


@contextmanager
def started(side: Side, folder: Path, model: str) -> Iterator[Server]:
    """The side's server, started now and ended with the block; it may not answer yet."""
    folder.mkdir(parents=True)
    port, other = free_ports(2)
    command = side.command(Place(folder, port, other, f"{model}/v1"))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
        **QUIET,
        "HOME": str(folder),
        "PALLAS_LOG_FILE": str(folder / "pallas.log"),
        "PYTHONPATH": str(ROOT),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    path = folder / "output.txt"
    with path.open("w") as output, program(command, folder, environment, output) as running:
        yield Server(side, f"http://127.0.0.1:{port}", model, psutil.Process(running.pid), path)
