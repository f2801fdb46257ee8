"""What `pallas chat` asks the fleet about its agent, its thread and its runs."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from pallas.client import RestClient
from pallas.client.rest_client import part
from pallas.model import AgentState, Fault
from pallas.model.refusals import not_found
from pallas.safe_text import one_line

from .chat_options import ChatOptions
from .exit_status import ABSENT, ChatExit

START_TIMEOUT: Final = 120.0
"""Seconds to wait for an agent that starts."""
_AGAIN_S: Final = 0.3
_STARTING: Final[Mapping[str, str]] = {
    AgentState.WAITING: "waits for agents or programs that it needs",
    AgentState.IMPORTING: "imports its code",
    AgentState.CONNECTING: "connects to its servers",
}


async def check_agent(api: RestClient, options: ChatOptions) -> dict[str, Any]:
    """Return the agent's facts, empty when the caller may not see it. Raises ChatExit (ABSENT)."""
    try:
        found = await api.get(f"/agents/{part(options.agent)}")
    except Fault as fault:
        if fault.data.get("reason") == "forbidden":
            return {}  # A caller may talk to an agent without the right to read it.
        if fault.data.get("reason") != "not_found":
            raise
        raise ChatExit(ABSENT, await _no_agent(api, options.agent)) from None
    return found if isinstance(found, dict) else {}


async def wait_until_started(
    api: RestClient, agent: str, about: dict[str, Any], tell: Callable[[str], None]
) -> dict[str, Any]:
    """Return the agent's facts once it no longer starts, after ``START_TIMEOUT`` seconds in any case.

    ``tell`` receives what it waits for, whenever that changes.
    """
    told, deadline = "", monotonic() + START_TIMEOUT
    while about.get("state") in _STARTING and monotonic() < deadline:
        health = about.get("health")
        why = about.get("reason") or (health.get("message") if isinstance(health, dict) else "") or ""
        what = _STARTING[str(about["state"])] + (f" ({one_line(str(why), 200)})" if why else "")
        if what != told:
            tell(f"waiting for {one_line(agent, 100)}: it {what}")
            told = what
        await asyncio.sleep(_AGAIN_S)
        found = await api.get(f"/agents/{part(agent)}")
        about = found if isinstance(found, dict) else {}
    return about


async def thread_named(api: RestClient, name: str, agent: str) -> Any:
    """Return the thread with that id or handle. Raises Fault ("not found")."""
    if "/" not in name:
        return await api.get(f"/threads/{part(name)}", agent=agent)
    page = await api.get("/threads", handle=name)
    items = page.get("items", ()) if isinstance(page, dict) else ()
    mine = [each for each in items if isinstance(each, dict) and each.get("agent") == agent]
    if not (found := [*mine, *items]):
        raise not_found("thread not found: it is unknown, deleted, or belongs to another caller")
    return found[0]


async def check_thread(api: RestClient, options: ChatOptions) -> dict[str, Any]:
    """Return the thread to continue.

    Raises ChatExit (ABSENT) when it is unknown, or belongs to another caller or another agent.
    """
    try:
        found = await thread_named(api, options.thread, options.agent)
    except Fault as fault:
        if fault.data.get("reason") != "not_found":
            raise
        raise ChatExit(ABSENT, f"thread {one_line(options.thread, 200)}: {fault.message}") from None
    theirs = found.get("agent") if isinstance(found, dict) else None
    if isinstance(theirs, dict):
        theirs = theirs.get("name")
    if isinstance(theirs, str) and theirs != options.agent:
        raise ChatExit(
            ABSENT,
            f"thread {one_line(options.thread, 200)} belongs to the agent {one_line(theirs, 100)}, not to "
            f"{one_line(options.agent, 100)}: pallas chat {one_line(theirs, 100)} --thread ...",
        )
    return found if isinstance(found, dict) else {}


async def run_facts(api: RestClient, run: str) -> dict[str, Any]:
    """Return the fleet's facts about a run; empty when it does not answer soon."""
    if not run:
        return {}
    with suppress(Fault):
        found = await api.get(f"/runs/{part(run)}", timeout=3.0)
        return found if isinstance(found, dict) else {}
    return {}


async def _no_agent(api: RestClient, name: str) -> str:
    from difflib import get_close_matches

    known: list[str] = []
    with suppress(Fault):
        known = [str(each.get("name")) async for each in api.items("/agents", most=200)]
    near = get_close_matches(name, known, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known[:20])}" if known else ""
    told = f"there is no agent {one_line(name, 100)} at {api.place.origin}"
    return f"{told}; {hint}" if hint else told
