"""A project whose agents do as a test of the bridge says, and clients of the bridge."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mcp import Client

from .live import write_project
from .offline import offline_model
from .served import text_of

TOOLS = [
    "bridge_health", "agents_discover", "sessions_create", "sessions_prompt", "sessions_status",
    "sessions_close", "sessions_cancel", "tasks_delegate",
]  # fmt: skip

# What code of an agent prints is no part of what a client reads, at whatever descriptor.
HANDS = '''
import asyncio
import os
import sys
from pathlib import Path

from pallas.model import Fault, FaultType

print("NOISE", flush=True)
os.write(1, b"NOISE\\n")
os.write(sys.__stdout__.fileno(), b"NOISE\\n")
os.system("echo NOISE")


async def upper(request):
    """Answers in capital letters."""
    return request.text.upper()


async def slow(request):
    """Never ends by itself; notes in files how it fares."""
    Path("slow.began").write_text(request.run_id)
    try:
        await asyncio.sleep(300)
    except asyncio.CancelledError:
        Path("slow.cancelled").write_text(request.run_id)
        raise


async def stubborn(request):
    """Never ends, and not when it is cancelled either."""
    Path("slow.began").write_text(request.run_id)
    while True:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            pass


async def fails(request):
    """Fails as it is told."""
    if request.text == "bug":
        raise RuntimeError("what is inside stays inside: sk-abcdefghijklmnopqrstuvwx")
    if request.text == "lines":
        return "\\n" * 440_000
    raise Fault(FaultType(request.text), f"{request.text} it is")
'''

MODEL = """
rules:
  - {when: {text: refuse}, error: {status: 401, message: "bad key sk-abcdefghijklmnopqrstuvwx"}}
  - {when: {text: hurry}, error: {status: 429, message: "slow down"}}
  - {when: {text: break}, error: {status: 503, message: "oops"}}
  - {when: {last: user}, say: "turn {{ turns }}, first {{ first }}"}
"""


def hand(name: str, **more: Any) -> dict[str, Any]:
    """The entry of an agent that is a function of ``hands.py``."""
    return {"kind": "handler", "handler": f"hands:{name}", "module": None, **more}


def bridged(root: Path, agents: tuple[str, ...] = ("desk", "upper", "slow", "fails"), **more: Any) -> Path:
    """A project of an agent with a model, and of others that are plain functions."""
    top = {"sessions": {"concurrent": 3}, **more.pop("top", {})}
    keys: Mapping[str, Mapping[str, Any]] = {
        "desk": {"description": "Knows what it is asked", "capabilities": ["know"]},
        "upper": hand("upper", capabilities=["shout", "letters"]),
        "slow": hand("slow"),
        "stubborn": hand("stubborn"),
        "fails": hand("fails"),
    }
    return write_project(
        root,
        dict.fromkeys(agents),
        keys={name: {**keys[name], **more.get("keys", {}).get(name, {})} for name in agents},
        **offline_model(MODEL, top=top, config={"llm_retries": 0}, files={"hands.py": HANDS}),
    )


async def tell(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """What a tool of the bridge answers; fails the test where it is no document, said twice alike."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    assert [block.type for block in result.content] == ["text"]
    body: dict[str, Any] = json.loads(text_of(result))
    assert result.structured_content == body
    return body


async def refused(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The body of an error; fails the test where it is not as docs/connect.md#errors says."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, text_of(result)
    body: dict[str, Any] = json.loads(text_of(result))
    assert isinstance(body["error"], str)
    assert isinstance(body["code"], int)
    assert isinstance(body["data"]["type"], str)
    assert isinstance(body["data"]["retryable"], bool)
    assert "Traceback" not in text_of(result)
    return body


def kind_of(body: Mapping[str, Any]) -> tuple[str, int, bool]:
    """Its type, its code, and whether trying again helps."""
    return body["data"]["type"], body["code"], body["data"]["retryable"]
