"""Projects with a server whose tools change while it runs, and with a lock of what it was."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mcp_types import Prompt, Tool

from pallas.tools_lock.lock_file import LockedServer, ToolsLock, write_lock
from pallas.tools_lock.surface import Surface, prompt_items, tool_items

from .live import agent_module
from .offline import offline_project

CHANGING_SERVER: Final = Path(__file__).with_name("changing_server.py").read_text("utf-8")
SCHEMA: Final = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
ORDER: Final[Mapping[str, Any]] = {"name": "order", "description": "Order an item.", "inputSchema": SCHEMA}
STOCK: Final[Mapping[str, Any]] = {
    "name": "stock",
    "description": "Say what is there.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}
SHOP: Final[Mapping[str, Any]] = {
    "instructions": "Be kind.",
    "tools": [ORDER, STOCK],
    "prompts": [{"name": "greet", "description": "Say hello."}],
}
_RULE: Final = "  - {when: {last: user, text: call NAME}, call: [{tool: NAME, arguments: {item: x}}]}"
_NAMES: Final = ("order", "stock", "pay", "buy")
SCRIPT: Final = "\n".join(
    ["rules:", *(_RULE.replace("NAME", f"shop__{name}") for name in _NAMES), "  - {say: done}", ""]
)
"""A message ``call shop__order`` has the model call that tool, any other is answered."""


def said(surface: Mapping[str, Any]) -> Surface:
    """The surface of a server that lists these."""
    return Surface(
        surface.get("instructions") or "",
        tool_items(Tool.model_validate(each) for each in surface.get("tools", ())),
        prompt_items(Prompt.model_validate(each) for each in surface.get("prompts", ())),
    )


def list_now(root: Path, surface: Mapping[str, Any]) -> None:
    """Have the server list this from now on, and tell its clients."""
    draft = root / "surface.draft"
    draft.write_text(json.dumps(surface), "utf-8")
    draft.replace(root / "surface.json")


def calls_of(root: Path) -> list[str]:
    """The tools that were called at the server."""
    log = root / "calls.log"
    return log.read_text("utf-8").split() if log.exists() else []


def locked_project(
    root: Path,
    *,
    mode: str | None = "hold",
    keys: Mapping[str, Any] | None = None,
    protocol: str = "auto",
    server: Mapping[str, Any] | None = None,
    agents: Sequence[str] = ("desk",),
    **more: Any,
) -> Path:
    """A project whose agents call the server ``shop`` and put its instructions into their own, and its lock.

    ``keys`` are of each agent, ``protocol`` is the server's ``protocol_mode``, ``server`` adds to its
    entry.
    """
    source = agent_module("NAME", ("shop",)).replace("You are NAME.", "You are NAME. {{serverInstructions}}")
    entry = {"command": "python", "args": ["changing_server.py"], "protocol_mode": protocol}
    offline_project(
        root,
        {name: source.replace("NAME", name) for name in agents},
        SCRIPT,
        keys={name: dict(keys or {}) for name in agents},
        top={"tools_lock": mode} if mode else {},
        config={"mcp": {"servers": {"shop": {**entry, **(server or {})}}}},
        files={"changing_server.py": CHANGING_SERVER, "surface.json": json.dumps(SHOP)},
        **more,
    )
    write_lock(root, ToolsLock({"shop": LockedServer(said(SHOP))}))
    return root
