"""Fleets whose agents ask people, three agents deep, and clients that answer."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as mt
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from pallas.fleet.fleet import Fleet

from .live import agent_module, tool_call, write_project

ASKING = '''
"""A handler that asks."""

import asyncio

from pallas.asking import ask, can_ask

class Clerk:
    id = "clerk"

    async def prompt(self, request):
        assert can_ask()
        if request.text.startswith("two"):
            found = await asyncio.gather(ask("Which first?"), ask("Which second?"))
            return " ".join(each.text or each.action for each in found)
        found = await ask("Which branch?", timeout=float(request.text.partition(" in ")[2] or 60))
        return f"released {found.text}" if found.action == "accept" else f"nothing, {found.action}"

clerk = Clerk()
'''


def asking_project(root: Path, *, top: Mapping[str, Any] | None = None, **keys: Any) -> Path:
    """The agents ``front`` and ``desk``, of which each asks the next, and ``clerk``, which asks a person."""
    return write_project(
        root,
        {"front": agent_module("front"), "desk": agent_module("desk"), "clerk": ASKING},
        keys={
            "front": {"peers": ["desk"]},
            "desk": {"peers": ["clerk"]},
            "clerk": {"module": None, "kind": "handler", "handler": "agents.clerk:clerk"},
            **keys,
        },
        top=top,
    )


def through(*agents: str, text: str) -> str:
    """The message that has each of these agents ask the next, and the last one asked that text."""
    for agent in reversed(agents):
        text = tool_call(agent, message=text)
    return text


Answering = Callable[[mt.ElicitRequestFormParams], mt.ElicitResult | Any]


def accepting(content: Mapping[str, Any]) -> mt.ElicitResult:
    """The answer of a person who fills the form."""
    return mt.ElicitResult(action="accept", content=dict(content))


@asynccontextmanager
async def asked_client(
    url: str, era: str, answer: Any | None, *, bearer: str | None = None
) -> AsyncIterator[Client]:
    """A client whose user is ``answer``, an async function of a form's parameters; None for one without."""

    async def elicited(_: Any, params: Any) -> mt.ElicitResult:
        assert answer is not None
        found: mt.ElicitResult = await answer(params)
        return found

    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(
            streamable_http_client(url, http_client=http),
            mode=era,
            elicitation_callback=elicited if answer is not None else None,
        ) as connected,
    ):
        yield connected


def url_of(fleet: Fleet, agent: str) -> str:
    """Where an agent answers."""
    return next(each.url for each in fleet.agents if each.name == agent)
