"""Pallas beside other frameworks that serve agents, asked in turn by the same client, with the same model.
A turn is one message of a conversation with its answer, stored so that the next turn sees it; the answers of
the model prove that it does. PEERS="langgraph agno" chooses sides, FIGURES="load long" what is measured."""

import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from pallas.processes.event_loop import run

from ..model_server import model
from .measured import Server, started
from .results import MANY, Found, Line, Memory, lines
from .sides import SIDES, Side

WORDS = 20
ROUNDS = int(os.environ.get("ROUNDS", "5"))
TURNS = 5
CONVERSATIONS = {MANY: 2, 1: 6}
"""For each number of callers, how many conversations of ``TURNS`` turns each of them has in a slice."""
LONG_ROUNDS, LONG_CALLERS, LONG_TURNS, WINDOW = 2, 5, 100, 5
STARTS = 3
FIGURES = ("start", "memory", "load", "long")


def measure() -> Iterator[Line]:
    """Measure what the environment asks for; the lines of the table come at the end."""
    wanted = os.environ.get("FIGURES", "").split() or list(FIGURES)
    names = os.environ.get("PEERS", "").split() or [side.name for side in SIDES]
    sides = [side for side in SIDES if side.name in names]
    if unknown := {*names} - {side.name for side in SIDES} | {*wanted} - {*FIGURES}:
        known = ", ".join([*(side.name for side in SIDES), *FIGURES])
        raise SystemExit(f"unknown in PEERS or FIGURES: {', '.join(sorted(unknown))}; there are {known}")
    comparison = Comparison(sides)
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder, model(WORDS) as url:
        comparison.alone(Path(folder), url, STARTS if "start" in wanted else 0, "memory" in wanted)
        if "load" in wanted or "long" in wanted:
            comparison.side_by_side(Path(folder), url, "load" in wanted, "long" in wanted)
    yield from lines(comparison.found, comparison.failed)


class Comparison:
    """What was found of each side, and why those that failed did. A side that failed is not asked again."""

    def __init__(self, sides: list[Side]) -> None:
        self.found = {side: Found() for side in sides}
        self.failed: dict[Side, str] = {}

    def alone(self, folder: Path, url: str, starts: int, memory: bool) -> None:
        """Start each side so many times, one side after the other; with ``memory`` fill the last server."""
        for side in self.found:
            for number in range(0 if side.variant else max(starts, memory)):
                if side not in self.failed:
                    fill = memory and number >= starts - 1
                    where = folder / f"{side.name}-{number}"
                    _say(f"{side.name}, start {number + 1}")
                    with (
                        self._guarded(side),
                        started(side, where, url) as server,
                        self._guarded(side, server),
                    ):
                        run(self._alone(server, fill))

    async def _alone(self, server: Server, fill: bool) -> None:
        found, conversations = self.found[server.side], server.side.conversations
        found.starts.append(await server.first_answer())
        if fill:
            before = server.memory()
            await server.sample(MANY, conversations // MANY, 1)
            found.memory.append(Memory(before, server.memory(), conversations))

    def side_by_side(self, folder: Path, url: str, load: bool, long: bool) -> None:
        """Start all sides and measure a slice of each in turn: other work on the machine hits all."""
        with ExitStack() as stack:
            servers = []
            for side in [side for side in self.found if side not in self.failed]:
                with self._guarded(side):
                    servers.append(stack.enter_context(started(side, folder / side.name, url)))
            run(self._in_turn(servers, load, long))

    async def _in_turn(self, servers: list[Server], load: bool, long: bool) -> None:
        async def once(server: Server, kept: bool) -> None:
            for callers, samples in self.found[server.side].samples.items():
                sample = await server.sample(callers, CONVERSATIONS[callers], TURNS)
                if kept:
                    samples.append(sample)

        async def at_length(server: Server) -> None:
            if not server.side.variant:
                taken = await server.first_and_last(LONG_CALLERS, LONG_TURNS, WINDOW)
                self.found[server.side].long.append(taken)

        async def each(what: str, number: int, work: Callable[[Server], Awaitable[object]]) -> None:
            _say(f"{what} {number}")
            first = number % max(1, len(servers))
            for server in servers[first:] + servers[:first]:
                if server.side not in self.failed:
                    with self._guarded(server.side, server):
                        await work(server)

        await each("first answers", 0, Server.first_answer)
        for number in range((ROUNDS + 1) * load):
            await each("round", number, partial(once, kept=number > 0))
        for number in range(LONG_ROUNDS * long):
            await each("long conversations", number, at_length)

    @contextmanager
    def _guarded(self, side: Side, server: Server | None = None) -> Iterator[None]:
        """What goes wrong in the block is why this side failed, and stops no other one."""
        try:
            yield
        except Exception as error:
            last = server.last_line() if server else ""
            self.failed[side] = f"{str(error) or type(error).__name__}{last and f' (it printed: {last})'}"
            _say(f"{side.name} failed: {self.failed[side]}")


def _say(text: str) -> None:
    """Report progress, apart from the figures."""
    print(f"  {text}", file=sys.stderr, flush=True)
