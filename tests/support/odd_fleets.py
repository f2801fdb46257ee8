"""Fleets whose agents have odd servers.

Each server has an agent, or ``every`` has all of them; ``plain`` has none. The model is in the test: it calls
the tools that a message names by key, answers with what it read, and refuses what OpenAI refuses.
"""

import asyncio
import base64
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import Fault

from .fake_downstreams import serving
from .live import agent_module, run_agent, running, write_project
from .odd_http import OddHttp
from .odd_servers import OddServer, says
from .providers import Asked, Reply, provider
from .schema_rules import openai_refusals
from .waiting import until

MODEL: Final = "openai.gpt-4o"
PLAIN: Final = "plain"
EVERY: Final = "every"
_ANSWER_S: Final = 120
_PACE: Final = CheckIntervals(health=2, confirm=1, providers=3600, retry=3600)
_PROGRAM: Final = Path(__file__).with_name("odd_server_program.py")
_KEY: Final = re.compile(r"\bt\w+x[0-9]+\b")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@asynccontextmanager
async def odd_fleet(
    root: Path, servers: Sequence[OddServer], *, together: bool = False
) -> AsyncIterator[Fleet]:
    """A fleet with these servers, each of an agent of its own, or ``together`` of one agent.

    Those that start slowly go on once an agent without them has answered.
    """
    http = OddHttp()
    async with provider(strict_model) as behind, serving(http) as origin:
        entries = {server.name: _entry(root, server, http, origin) for server in servers}
        apart = {server.agent: (server.name,) for server in servers}
        used = {PLAIN: (), **({EVERY: tuple(entries)} if together else apart)}
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
        way = {"transport": "sse"} if server.transport == "sse" else {}
        return {"url": f"{origin}/{server.name}/mcp", "auth": {"oauth": False}, **way}
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
        key: tool["function"]["name"] for tool in offered for key in named if says(json.dumps(tool), key)
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
    parts = [part for each in messages if isinstance(each.get("content"), list) for part in each["content"]]
    for part in parts:
        if part.get("type") == "text" and not part["text"]:
            yield "a part of a message is empty"
        address = (part.get("image_url") or {}).get("url", "")
        if part.get("type") == "image_url" and not _is_picture(address):
            yield f"an image must be a PNG, JPEG, GIF or WebP: {address[:60]}"
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


def _is_picture(address: str) -> bool:
    """Whether OpenAI reads a data address as a picture: its type must be that of the data."""
    found = re.fullmatch(r"data:image/(png|jpeg|gif|webp);base64,(.+)", address)
    starts = {"png": b"\x89PNG", "jpeg": b"\xff\xd8", "gif": b"GIF8", "webp": b"RIFF"}
    try:
        return found is not None and base64.b64decode(found[2]).startswith(starts[found[1]])
    except ValueError:
        return False


def _text(content: Any) -> str:
    """The text of a message; a picture is a word."""
    if isinstance(content, list):
        return " ".join(each.get("text", "[picture]") for each in content)
    return content or ""


async def called(
    fleet: Fleet, agent: str, keys: Sequence[str]
) -> tuple[dict[str, str], str, Mapping[str, str]]:
    """Have an agent call the tools of these keys.

    Returns what the model read of each that it was offered, by key; why the run failed, or what the model
    refused; and servers that the answer says are missing, with the reason.
    """
    try:
        async with asyncio.timeout(_ANSWER_S):
            result = await run_agent(fleet, agent, " ".join(["call", *keys]))
    except Fault as fault:
        return {}, fault.message, {}
    except TimeoutError:
        return {}, f"no answer within {_ANSWER_S} s", {}
    said = json.loads(result.texts[-1])
    return said.get("read", {}), "; ".join(said.get("refused", ())), result.missing
