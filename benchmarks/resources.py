"""Memory of a conversation that nobody uses, and what many calls leave behind. The server itself tells its
memory after a collection (benchmarks/facts.py); handshake-era sessions are kept without a standing stream."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import cycle

import psutil

from pallas.processes.event_loop import run

from . import facts
from .caller import HANDSHAKE, MODERN, Caller
from .facts import Facts
from .first_answer import one_agent
from .programs import bare, fleet, free_ports
from .report import Figure

CONVERSATIONS = 2_000
# Enough throw-away runs to fill the ring of events, which would else be counted as conversations.
FILLING = 7_000
FEW, MANY = 100, 10_000
CALLERS = 16
# Seconds that any one batch of calls may take.
DEADLINE = 600.0

Work = Callable[[Caller], Awaitable[None]]


async def _spread(url: str, era: str, number: int, work: Work) -> None:
    """Do ``work`` that many times, by callers side by side."""
    left = iter(range(number))

    async def one(caller: Caller) -> None:
        for _ in left:
            await work(caller)

    async with asyncio.timeout(DEADLINE), AsyncExitStack() as stack:
        callers = [await stack.enter_async_context(Caller(url, era)) for _ in range(CALLERS)]
        await asyncio.gather(*map(one, callers))


async def _throw_away(caller: Caller) -> None:
    await caller.call("send_message", message="hello")


async def _conversation(caller: Caller) -> None:
    await caller.call("send_message", message="hello", conversation_id=secrets.token_urlsafe(18))


async def _session(caller: Caller) -> None:
    """A client that says one thing and goes away without a word: its session stays until it expires."""
    await caller.open_session()
    await caller.call("send_message", message="hello")


async def _whole_session(caller: Caller) -> None:
    await _session(caller)
    await caller.end_session()


async def _health(caller: Caller) -> None:
    await caller.call("get_health")


async def _tool_call(caller: Caller) -> None:
    """The passthrough model calls the tool it is told, and answers with what that said."""
    command = '***CALL_TOOL echo__echo {"text": "said"}'
    text = await caller.call("send_message", message=command, conversation_id=secrets.token_urlsafe(18))
    if "said" not in text or "***" in text.splitlines()[-1]:
        raise RuntimeError(f"the tool was not called: {text[:300]}")


async def _kib_each(port: int, url: str, era: str, work: Work) -> float:
    before = await facts.settled(port)
    await _spread(url, era, CONVERSATIONS, work)
    after = await facts.settled(port)
    return (after.memory - before.memory) / 1024 / CONVERSATIONS


def _memory() -> Iterator[Figure]:
    port, peer_port = free_ports(2)
    with fleet(1, facts=port) as (urls, _, _):
        run(_spread(urls[0], MODERN, FILLING, _throw_away))
        nothing = run(_kib_each(port, urls[0], MODERN, _throw_away))
        kept = run(_kib_each(port, urls[0], MODERN, _conversation))
        detail = f"{CONVERSATIONS} of them, one turn each; {nothing:.2f} KiB for one that is not kept"
        yield Figure("memory of an idle conversation", kept, None, unit="KiB", detail=detail)
        ours = run(_kib_each(port, urls[0], HANDSHAKE, _session))
    with bare(facts=peer_port) as (url, _):
        run(_spread(url, MODERN, CONVERSATIONS, _throw_away))
        theirs = run(_kib_each(peer_port, url, HANDSHAKE, _session))
    yield Figure(
        "memory of an idle handshake-era session",
        ours,
        None,
        unit="KiB",
        detail=f"{CONVERSATIONS} of them, one turn each; a session of a bare FastMCP server {theirs:.1f} KiB",
    )


async def _calls(url: str, number: int) -> None:
    """A mix: health, a new conversation, one with a tool call, and a session from handshake to DELETE."""
    in_turn = cycle((_health, _conversation, _tool_call))
    await _spread(url, MODERN, number - number // 4, lambda caller: next(in_turn)(caller))
    await _spread(url, HANDSHAKE, number // 4, _whole_session)


async def _few_and_many(url: str, port: int) -> tuple[Facts, Facts]:
    await _calls(url, FEW)
    few = await facts.settled(port)
    await _calls(url, MANY - FEW)
    return few, await facts.settled(port)


def _handles() -> Iterator[Figure]:
    (port,) = free_ports(1)
    # Two instances, which even a few calls at once make: a pool that still grows is no leak.
    with fleet(1, stdio=True, facts=port, max_instances=2) as (urls, _, _):
        few, many = run(_few_and_many(urls[0], port))
    for name, before, after in (
        ("descriptors", few.descriptors, many.descriptors),
        ("children", few.children, many.children),
        ("asyncio tasks", sum(few.tasks.values()), sum(many.tasks.values())),
    ):
        detail = f"{after} and {before}"
        if name == "asyncio tasks" and before != after:
            more = {code: many.tasks.get(code, 0) - few.tasks.get(code, 0) for code in few.tasks | many.tasks}
            detail += f": {', '.join(f'{code} {change:+}' for code, change in more.items() if change)}"
        yield Figure(f"{name} after {MANY} calls, more than after {FEW}", after - before, 0, "", detail)


def _served() -> Iterator[Figure]:
    """The whole process of an agent with a model, as the system counts it."""
    with one_agent() as (url, running, _):
        process = psutil.Process(running.pid)
        first = process.memory_info().rss / 1e6
        run(_spread(url, MODERN, CONVERSATIONS, _conversation))
        last = process.memory_info().rss / 1e6
    name = f"memory of one agent after {CONVERSATIONS} conversations"
    yield Figure(name, last, 140, "MB", f"{first:.0f} MB after its first answer")


def measure() -> Iterator[Figure]:
    """KiB for each idle conversation in either era; descriptors, children and tasks that calls leave."""
    yield from _served()
    yield from _memory()
    yield from _handles()
