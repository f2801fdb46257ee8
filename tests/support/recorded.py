"""A project to record: three agents, one of them called by its URL, and tools, one with a picture."""

import base64
import io
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import PIL.Image

from .live import agent_module
from .offline import offline_project

_NOISE = PIL.Image.frombytes("RGB", (128, 96), random.Random(7).randbytes(128 * 96 * 3))
_BUFFER = io.BytesIO()
_NOISE.save(_BUFFER, "PNG")
PICTURE = base64.b64encode(_BUFFER.getvalue()).decode()
"""A picture that the record of steps replaces by its digest."""
SERVER = '''
import base64
import os
from pathlib import Path

from stdio_server import StdioServer

if Path(__file__).with_name("gone").exists():
    raise SystemExit("it is gone")
server = StdioServer("shelf")


@server.tool()
def find(what: str) -> str:
    """Find a thing on the shelf."""
    return f"three {what} {os.environ.get('SHELF_PASSWORD', '')}".rstrip()


@server.tool(structured_output=False)
def look(at: str) -> dict[str, str]:
    """Make a picture of a thing."""
    picture = Path(__file__).with_name("picture.png").read_bytes()
    return {"type": "image", "data": base64.b64encode(picture).decode(), "mimeType": "image/png"}


server.run()
'''
# The lead asks the clerk over its URL and the keeper as a peer; the clerk uses the shelf twice.
SCRIPT = """
rules:
  - when: {last: user, text: broken}
    error: {status: 400, message: "no such thing"}
  - when: {last: user, text: wait}
    say: "a long time"
    delay: 60
  - when: {last: user, text: secret}
    call: [{tool: shelf__find, arguments: {what: "{{ last }}"}}]
  - when: {last: user, text: hello}
    say: "hello, turn {{ turns }}"
  - when: {last: user, system: You are lead}
    call:
      - {tool: clerk__send_message, arguments: {message: "find lamps"}}
      - {tool: keeper, arguments: {message: "count lamps"}}
  - when: {last: user, text: find lamps}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
  - when: {last: tool, text: three lamps, system: You are clerk}
    call: [{tool: shelf__look, arguments: {at: "lamps"}}]
  - when: {last: tool, system: You are clerk}
    say: "three lamps, seen"
  - when: {last: user, text: count lamps}
    say: "I keep nine lamps"
  - when: {last: tool}
    say: "All in all: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


PRICES = {"generic.scripted": {"input": 3.0, "output": 15.0}}


def close_shelf(root: Path) -> None:
    """Have the tool server end when it is started; neither its entry nor its files change."""
    (root / "gone").touch()


def recorded_project(root: Path, *, top: Mapping[str, Any] | None = None, **keys: Any) -> Path:
    """The agents ``lead``, ``clerk`` and ``keeper``; ``keys`` are added to each agent's entry."""
    agents: dict[str, str | None] = {
        "lead": agent_module("lead", ("clerk",)),
        "clerk": agent_module("clerk", ("shelf",)),
        "keeper": agent_module("keeper"),
    }
    environment = {"SHELF_PASSWORD": "${SHELF_PASSWORD:}"}
    shelf = {"command": "python", "args": ["shelf.py"], "env": environment}
    sees = {"model_capabilities": {"vision": True}}
    made = offline_project(
        root,
        agents,
        SCRIPT,
        peers=("clerk",),
        keys={"lead": {"peers": ["keeper"], **sees, **keys}, "clerk": {**sees, **keys}, "keeper": keys or {}},
        top={"bind": "127.0.0.1", "prices": PRICES, **(top or {})},
        config={"mcp": {"servers": {"shelf": shelf}}},
        files={"shelf.py": SERVER},
    )
    (made / "picture.png").write_bytes(base64.b64decode(PICTURE))
    return made
