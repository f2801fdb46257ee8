"""Fleets whose agents have odd servers, and what must be so of each server.

Each server has an agent; the agent ``every`` has all of them, ``plain`` none. The model is in the test: it
calls the tools that a message names by key, answers with what it read, and refuses what OpenAI refuses.
"""

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Final

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import Fault, HealthStatus, ProbeResult
from pallas.safe_text import one_line

from .fake_downstreams import serving
from .live import agent_module, run_agent, running, write_project
from .odd_http import OddHttp
from .odd_servers import OddServer, OddTool
from .providers import Asked, Reply, provider
from .schema_rules import openai_refusals
from .waiting import until

MODEL: Final = "openai.gpt-4o"
PLAIN: Final = "plain"
EVERY: Final = "every"
PATIENCE_S: Final = 90
"""How long a server may take until all is as it must be: a silent one costs some time-outs."""
_PAUSE_S: Final = 1.5
_PACE: Final = CheckIntervals(health=2, confirm=1, providers=3600, retry=3600)
_PROGRAM: Final = Path(__file__).with_name("odd_server_program.py")
_KEY: Final = re.compile(r"\bt\w+x[0-9]+\b")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NO_REASON: Final = "cannot be reached|could not be reached|unreachable"


@dataclass(frozen=True, slots=True)
class Seen:
    """What an agent makes of its server at one moment."""

    read: Mapping[str, str]
    """What the model read of each tool that it could call, by the tool's key."""
    problem: str
    """Why the run failed, or what the model refused; empty if neither."""
    missing: Mapping[str, str]
    """Servers that the answer says are missing."""
    status: HealthStatus
    reach: ProbeResult
    words: str
    """All that health and the details of the agent say of the server."""
    described: str
    """The tools in the details of the agent."""


@asynccontextmanager
async def odd_fleet(root: Path, servers: Sequence[OddServer]) -> AsyncIterator[Fleet]:
    """A fleet with these servers. Those that start slowly go on once an agent without them has answered."""
    http = OddHttp()
    async with provider(strict_model) as behind, serving(http) as origin:
        entries = {server.name: _entry(root, server, http, origin) for server in servers}
        used = {PLAIN: (), EVERY: tuple(entries), **{server.agent: (server.name,) for server in servers}}
        project = write_project(
            root,
            {name: agent_module(name, each, model=MODEL) for name, each in used.items()},
            config={**behind.config(MODEL), "mcp": {"servers": entries}},
        )
        async with running(project, pace=_PACE) as fleet:
            await until(lambda: run_agent(fleet, PLAIN, "call"))
            for server in servers:
                _gate(root, server).touch()
            yield fleet


def _gate(root: Path, server: OddServer) -> Path:
    return root / f"{server.name}.gate"


def _entry(root: Path, server: OddServer, http: OddHttp, origin: str) -> dict[str, Any]:
    """How the configuration names the server; it is made where it is."""
    spec = server.spec()
    if "steps" in spec:
        spec["steps"]["file"] = str(root / f"{server.name}.steps")
    if "gate" in spec:
        spec["gate"] = str(_gate(root, server))
    if server.transport != "stdio":
        http.add(server.name, server.transport, spec)
        return {"url": f"{origin}/{server.name}/mcp", "auth": {"oauth": False}}
    file = root / f"{server.name}.json"
    file.write_text(json.dumps(spec), "utf-8")
    return {"command": sys.executable, "args": ["-I", "-S", str(_PROGRAM), str(file)]}


def strict_model(asked: Asked) -> Reply:
    """Call the tools whose keys the user names; then answer with what was read of each, as JSON."""
    messages, offered = asked.body["messages"], asked.body.get("tools") or []
    if refused := [*_refusals(messages, offered)]:
        return Reply(json.dumps({"refused": refused}))
    first = next(number for number, each in enumerate(messages) if each["role"] == "user")
    named = _KEY.findall(_text(messages[first]["content"]))
    names = {
        key: tool["function"]["name"] for tool in offered for key in named if _says(json.dumps(tool), key)
    }
    calls = {
        call["id"]: call["function"]["name"] for each in messages for call in each.get("tool_calls") or ()
    }
    if names and not calls:
        return Reply(calls=[(name, {}) for name in names.values()])
    later = messages[first + 1 :]
    texts = {each["tool_call_id"]: _text(each["content"]) for each in later if each["role"] == "tool"}
    beside = " ".join(_text(each["content"]) for each in later if each["role"] == "user")
    keys = {name: key for key, name in names.items()}
    read = {keys[name]: f"{texts.get(id_, '')} {beside}".strip() for id_, name in calls.items()}
    return Reply(json.dumps({"read": read}))


def _refusals(messages: Sequence[Mapping[str, Any]], offered: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What a strict provider refuses of a request."""
    if any(each["role"] in ("user", "tool") and not each.get("content") for each in messages):
        yield "a message is empty"
    names = [tool["function"]["name"] for tool in offered]
    for name, count in Counter(names).items():
        if count > 1:
            yield f"tool names must be unique: {name!r}"
        if not _NAME.fullmatch(name):
            yield f"a tool's name must match {_NAME.pattern}: {name[:80]!r}"
    for tool in offered:
        with suppress(RecursionError):
            for refusal in openai_refusals(tool["function"].get("parameters")):
                yield f"{tool['function']['name']}: {refusal}"


def _text(content: Any) -> str:
    """The text of a message; a picture is a word."""
    if isinstance(content, list):
        return " ".join(each.get("text", "[picture]") for each in content)
    return content or ""


def _says(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


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
        read, problem, missing, snapshot.health.status, downstream.reach, "; ".join(filter(None, words)),
        "\n".join(described),
    )  # fmt: skip


async def called(
    fleet: Fleet, agent: str, keys: Sequence[str]
) -> tuple[dict[str, str], str, Mapping[str, str]]:
    """What the model read of each tool that it could call, what went wrong, and servers that were missing."""
    try:
        result = await run_agent(fleet, agent, " ".join(["call", *keys]))
    except Fault as fault:
        return {}, fault.message, {}
    said = json.loads(result.texts[-1])
    return said.get("read", {}), "; ".join(said.get("refused", ())), result.missing


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
        if tool.key in usable and not _says(seen.described, tool.key):
            yield f"{_shown(tool)} can be called, but is not among the tools of the agent's details"
    yield from _health_findings(server, seen, usable, is_all_there=not broken)


def _health_findings(
    server: OddServer, seen: Seen, usable: Collection[str], *, is_all_there: bool
) -> Iterator[str]:
    health = f"health is {seen.status}, {server.name} is {seen.reach}: {seen.words!r}"
    if not usable:
        if seen.status is HealthStatus.OK:
            yield f"no tool can be used, but {health}"
        if not re.search(
            server.why or ".", re.sub(_NO_REASON, "", seen.words, flags=re.IGNORECASE), re.IGNORECASE
        ):
            yield f"no tool can be used, and nothing says why ({server.why}): {health}"
        return
    if seen.reach is not ProbeResult.OK:
        yield f"tools are called, but {health}"
    if is_all_there and seen.missing:
        yield f"all sound tools are called, but an answer says that it lacks {dict(seen.missing)}"
    if server.is_remarkable and not seen.words:
        yield f"{', '.join(server.faults)}: nothing is said of it"
    if len(usable) == len({tool.key for tool in server.tools}) and not server.is_remarkable:
        if seen.status is not HealthStatus.OK:
            yield f"all tools can be used, but {health}"
    elif not is_all_there and seen.status is HealthStatus.OK and not seen.words:
        yield f"calls fail, but {health}"


def _shown(tool: OddTool) -> str:
    return f"tool {(tool.name or '')[:30]!r} ({tool.key})"


def _names(words: str, name: str | None) -> bool:
    """Whether a tool's name, or as much as fits, is in the words; one without a name needs some words."""
    return _says(words, one_line(name, 40).rstrip("…")) if name else bool(words)


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
