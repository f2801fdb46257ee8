"""Calls of a model over connections that stay open, beside calls as fast-agent makes them: a connection each.

The model is another process, which answers a stream of a few pieces at once and counts its connections.
"""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from fast_agent.config import Settings

from pallas.config import load_project
from pallas.executors.fastagent import completion_seam, model_client_seam, quick_connect
from pallas.executors.fastagent.message_conversion import natives
from pallas.executors.model_client.provider_connections import provider_connections
from pallas.fleet.fleet import Fleet
from pallas.model import Message, RunRequest
from pallas.processes.event_loop import run
from pallas.runs.run_recorder import GATHER

from .model_server import answer_text, counts_of, model
from .programs import free_ports
from .report import Figure

ROUNDS = 10
TURNS = 20
CONVERSATIONS = 10
EACH = 4
"""Turns of each conversation in a round with or without the record."""
LONG = 100
QUESTION = "What does the next line of this file say, and why does it say so? " * 6
PROJECT = "name: bench\nport: {port}\nagents:\n  talker: {{module: talker}}\n"
AGENT = """
from fast_agent import FastAgent

fast = FastAgent("talker")


@fast.agent(name="talker", instruction="Answer in words." * 50, model="generic.m")
async def main() -> None: ...
"""
SETTINGS = (
    "default_model: generic.m\ngeneric: {{api_key: none, base_url: {base}/v1}}\nlogger: {{type: none}}\n"
)
CALLS = 50
WORDS = 6


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    yield from connections()
    with tempfile.TemporaryDirectory() as folder, model(WORDS) as base:
        yield run(_recorded(Path(folder), base))
    yield long_conversation()


def connections() -> list[Figure]:
    """Calls over connections that stay open, beside those of a connection each."""
    with model(WORDS) as base:
        return run(_figures(base))


def long_conversation() -> Figure:
    """The last turn of a long conversation against the first."""
    with tempfile.TemporaryDirectory() as folder, model(WORDS) as base:
        return run(_long(Path(folder), base))


async def _figures(base: str) -> list[Figure]:
    ours: list[tuple[float, float, int]] = []
    theirs: list[tuple[float, float, int]] = []
    quick_connect.install()
    async with provider_connections().held():
        await _round(base, shared=True)
        for _ in range(ROUNDS):
            ours.append(await _round(base, shared=True))
            theirs.append(await _round(base, shared=False))
    thousand = 1000 / (ROUNDS * CALLS)
    opened, alone = (sum(each[2] for each in found) * thousand for found in (ours, theirs))
    processor, wall = (median(a[n] / b[n] for a, b in zip(ours, theirs, strict=True)) for n in (0, 1))
    return [
        Figure(
            "connections of 1,000 calls in a row", opened, 1.0, "", f"{alone:.0f} as fast-agent makes them"
        ),
        Figure("processor time of a call against fast-agent's", processor, 1.0),
        Figure("a call against fast-agent's, on loopback", wall, 1.0),
    ]


async def _long(folder: Path, base: str) -> Figure:
    """Turns of conversations of ``LONG`` turns, the last beside the first."""
    fleet = _fleet(folder, base)
    await fleet.start()
    taken: list[list[float]] = []
    try:
        for conversation in range(CONVERSATIONS):
            turns = []
            for _ in range(LONG):
                processor = process_time()
                await fleet.kernel.run(RunRequest("talker", QUESTION, conversation=f"long {conversation}"))
                turns.append(process_time() - processor)
            taken.append(turns)
    finally:
        await fleet.stop()
    last, first = (
        median(part for turns in taken[1:] for part in turns[n : n + 10 or None]) * 1e3 for n in (-10, 0)
    )
    return Figure(
        f"processor time of turn {LONG} of a kept conversation against turn 1",
        last / first,
        1.5,
        "x",
        f"{last:.2f} ms against {first:.2f} ms; medians of ten turns each",
    )


def _fleet(folder: Path, base: str) -> Fleet:
    (folder / "agents.yaml").write_text(PROJECT.format(port=free_ports(1)[0]), "utf-8")
    (folder / "talker.py").write_text(AGENT, "utf-8")
    (folder / "fastagent.config.yaml").write_text(SETTINGS.format(base=base), "utf-8")
    return Fleet(load_project(folder, {}), database=f"sqlite:///{folder}/ledger.db")


async def _recorded(folder: Path, base: str) -> Figure:
    """Turns of kept conversations with and without the record of their model steps, one after the other."""
    fleet = _fleet(folder, base)
    await fleet.start()
    begin: Any = fleet.kernel.steps.open
    begins = {True: begin, False: lambda run_id, scope: None}
    rounds: list[tuple[float, float]] = []
    try:
        for _ in range(TURNS):
            taken = {True: 0.0, False: 0.0}
            for recorded in (True, False, False, True):
                fleet.kernel.steps.open = begins[recorded]  # type: ignore[method-assign]
                processor = process_time()
                for turn in range(CONVERSATIONS * EACH):
                    handle = f"{recorded} {turn % CONVERSATIONS} of a benchmark"
                    await fleet.kernel.run(RunRequest("talker", QUESTION, conversation=handle))
                await asyncio.sleep(GATHER + 0.05)  # until its records are written
                taken[recorded] += process_time() - processor
            rounds.append((taken[True], taken[False]))
    finally:
        await fleet.stop()
    warm = rounds[TURNS // 4 :]
    turns = 2 * CONVERSATIONS * EACH
    with_it, without = (median(each[n] for each in warm) / turns * 1e3 for n in (0, 1))
    return Figure(
        "processor time of a kept turn with its steps recorded",
        with_it / without,
        1.03,
        "x",
        f"{with_it:.2f} ms against {without:.2f} ms",
    )


async def _round(base: str, *, shared: bool) -> tuple[float, float, int]:
    """Return processor and wall seconds of some calls, and the connections that they opened."""
    install = model_client_seam.install
    before = (await counts_of(base)).connections
    if not shared:
        model_client_seam.install = lambda llm: None
    try:
        make, provider = completion_seam.maker_of("openai.gpt-4.1")
        settings = Settings()
        processor, wall = process_time(), perf_counter()
        for _ in range(CALLS):
            llm = completion_seam.model(make, provider, settings, "key", f"{base}/v1")
            answer = await llm.generate(natives([Message("user", "hello")]), llm.default_request_params)
            assert answer.last_text() == answer_text(WORDS, 1)
        taken = process_time() - processor, perf_counter() - wall
    finally:
        model_client_seam.install = install
    return *taken, (await counts_of(base)).connections - before
