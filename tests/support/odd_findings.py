"""What must be so of an odd server in a fleet: its tools are called, and health says no more and no less."""

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from pallas.fleet.fleet import Fleet
from pallas.model import HealthStatus, ProbeResult
from pallas.safe_text import one_line

from .odd_fleets import called
from .odd_servers import OddServer, OddTool, says

PATIENCE_S: Final = 400
"""How long a server may take until all is as it must be: a silent one costs some time-outs, more if busy."""
_PAUSE_S: Final = 1.5
_NO_REASON: Final = re.compile("cannot be reached|could not be reached|unreachable", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent makes of its server at one moment."""

    read: Mapping[str, str]
    """What the model read of each tool that it could call, by the tool's key."""
    problem: str
    """Why the run failed, or what the model refused; empty if neither."""
    missing: Mapping[str, str]
    """Servers that the answer says are missing, with the reason."""
    status: HealthStatus
    reach: ProbeResult
    words: str
    """All that health and the details of the agent say of the server, without its name."""
    described: str
    """The tools in the details of the agent."""


async def look(fleet: Fleet, server: OddServer) -> Seen:
    """Have the server's agent call each tool; then look at its health and its details."""
    keys, agent = dict.fromkeys(tool.key for tool in server.tools), server.agent
    read, problem, missing = await called(fleet, agent, [*keys])
    if problem and len(keys) > 1:  # which of them is it?
        found = await asyncio.gather(*(called(fleet, agent, [key]) for key in keys))
        read = {key: text for each, _, _ in found for key, text in each.items()}
    snapshot = fleet.snapshot().agent(agent)
    assert snapshot is not None
    downstream = next(each for each in snapshot.downstreams if each.name == server.name)
    detail = next(each for each in (await fleet.describe(agent)).servers if each.server == server.name)
    words = [snapshot.health.message, downstream.detail, detail.problem]
    if downstream.last_call is not None and not downstream.last_call.ok:
        words.append(downstream.last_call.detail)
    described = [f"{tool.name} {tool.description} {tool.input_schema}" for tool in detail.tools]
    return Seen(
        read, problem, missing, snapshot.health.status, downstream.reach,
        "; ".join(filter(None, words)).replace(server.name, "it"), "\n".join(described),
    )  # fmt: skip


def findings(server: OddServer, seen: Seen) -> Iterator[str]:
    """What is not as it must be, a line each."""
    sound = {tool.key: tool for tool in server.tools if tool.is_sound}
    usable = {tool.key for tool in server.tools if tool.is_answered(seen.read.get(tool.key))}
    broken = [tool for key, tool in sound.items() if key not in usable]
    is_lost = bool(server.why) and not usable
    if seen.problem:
        yield f"the run failed: {seen.problem}"
    if not is_lost:
        for tool in broken:
            read = seen.read.get(tool.key)
            state = "is not offered" if read is None else f"answers {read[:200]!r}"
            yield f"{_shown(tool)} {state}"
    for tool in server.tools:
        if not tool.is_sound and usable and tool.key not in usable:
            if tool.key in seen.read:
                yield f"{_shown(tool)} answers {seen.read[tool.key][:200]!r}"
            elif not _names(seen.words, tool.name):
                yield f"{_shown(tool)} is left out, which is not said in {seen.words!r}"
        if tool.key in usable and not says(seen.described, tool.key):
            yield f"{_shown(tool)} can be called, but is not among the tools of the agent's details"
    yield from _health_findings(server, seen, usable, is_all_there=not broken)


def _health_findings(
    server: OddServer, seen: Seen, usable: Collection[str], *, is_all_there: bool
) -> Iterator[str]:
    health = f"health is {seen.status}, {server.name} is {seen.reach}: {seen.words!r}"
    if not usable:
        if seen.status is HealthStatus.OK:
            yield f"no tool can be used, but {health}"
        if not re.search(server.why or r"\w{3}", _NO_REASON.sub("", seen.words), re.IGNORECASE):
            yield f"no tool can be used, and nothing says why ({server.why}): {health}"
        if _NO_REASON.search(seen.missing.get(server.name, "")):  # all of them answer something
            yield f"an answer says what is not so: {dict(seen.missing)}"
        return
    if server.gone and server.gone in seen.words:
        return
    if seen.reach is not ProbeResult.OK:
        yield f"tools are called, but {health}"
    if is_all_there and seen.missing:
        yield f"all sound tools are called, but an answer says that it lacks {dict(seen.missing)}"
    if not re.search(server.remark, seen.words, re.IGNORECASE):
        yield f"nothing is said of {', '.join(server.faults)} ({server.remark}): {health}"
    is_whole = len(usable) == len({tool.key for tool in server.tools})
    if is_whole and not server.remark and seen.status is not HealthStatus.OK:
        yield f"all tools can be used, but {health}"
    if not is_all_there and seen.status is HealthStatus.OK and not seen.words:
        yield f"calls fail, but {health}"


def _shown(tool: OddTool) -> str:
    return f"tool {(tool.name or '')[:30]!r} ({tool.key})"


def _names(words: str, name: str | None) -> bool:
    """Whether a tool's name, or as much as fits, is in the words; one without a name needs some words."""
    return says(words, one_line(name, 40).rstrip("…")) if name else bool(words)


async def settled(fleet: Fleet, server: OddServer) -> tuple[Seen, list[str]]:
    """What was seen last, and what is still not as it must be when the patience is over.

    It is settled as soon as all is as it must be twice in a row.
    """
    deadline, times = monotonic() + PATIENCE_S, 0
    while True:
        seen = await look(fleet, server)
        found = [*findings(server, seen)]
        times = 0 if found else times + 1
        if times == 2 or monotonic() > deadline:
            return seen, found
        await asyncio.sleep(_PAUSE_S if found else 0)


async def reports(fleet: Fleet, servers: Sequence[OddServer]) -> dict[str, str]:
    """A report of each server with which something is wrong, by its label: its line, then what is wrong."""
    every = await asyncio.gather(*(settled(fleet, server) for server in servers))
    return {
        server.label: "\n".join([server.line, *(f"    {each}" for each in found)])
        for server, (_, found) in zip(servers, every, strict=True)
        if found
    }
