"""Callers who never stop asking, in both protocol eras, and remember what they were told."""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import httpx2
from mcp import Client, MCPError

from .account import Account
from .project import AGENTS

ERAS: Final = ("2026-07-28", "legacy")
CALL_TIMEOUT: Final = 60.0
# In the metadata of a result: the servers that the agent answered without.
_MISSING: Final = "local.pallas/missingServers"
_WORDS: Final = {
    "plain": ("say", "ask echo", "take long"),
    "alone": ("say", "ask echo", "take long"),
    "front": ("say", "ask bridge", "ask plain"),
}


async def caller(
    number: int, urls: dict[str, str], account: Account, over: asyncio.Event, cancelled: Callable[[str], bool]
) -> None:
    """One caller until ``over``: it keeps its connection as long as that works."""
    chance = random.Random(number)
    era = ERAS[number % len(ERAS)]
    while not over.is_set():
        name = chance.choice(AGENTS)
        with suppress(Exception):  # what ends a connection was counted with its call
            async with Client(urls[name], mode=era) as client:
                for turn in range(chance.randrange(1, 20)):
                    if over.is_set():
                        return
                    text = f"{chance.choice(_WORDS[name])} {number}-{turn}-{chance.randrange(1_000_000)}"
                    outcome = await _call(client, name, text, account, chance)
                    if outcome == "broken":
                        break


async def _call(client: Client, name: str, text: str, account: Account, chance: random.Random) -> str:
    arguments: dict[str, Any] = {"message": text}
    if chance.random() < 0.5:
        arguments["conversation_id"] = "new"
    work = asyncio.ensure_future(client.call_tool("send_message", arguments))
    leave = chance.random() < 0.03
    try:
        if leave:  # some callers lose patience
            await asyncio.sleep(chance.random() * 0.05)
            work.cancel()
        async with asyncio.timeout(CALL_TIMEOUT):
            result = await work
    except asyncio.CancelledError:
        if not leave:
            raise
        account.call("left by the caller")
        return "left"
    except TimeoutError:
        account.call("lost", f"{name}: {text}: nothing came within {CALL_TIMEOUT:.0f} s")
        return "broken"
    except (MCPError, httpx2.HTTPError, OSError) as error:
        account.call("lost", f"{name}: {text}: {type(error).__name__}: {error}")
        return "broken"
    said = "".join(getattr(block, "text", "") for block in result.content)
    if not result.is_error:
        if text.rpartition(" ")[2] in said:
            account.call("completed")
        elif "Failed to call_tool" in said or '"retryable"' in said:  # the model was told, and told us
            account.call("completed, a tool failed")
        elif "is not available" in said and (result.meta or {}).get(_MISSING):
            account.call("completed, a server was missing")
        else:
            account.call("wrong", f"{text} -> {said}")
        return "completed"
    try:
        body = json.loads(said)
        kind = "cancelled" if body["data"].get("cancelled") else f"fault {body['data']['type']}"
        account.call(kind, f"{name}: {body['error']}")
        if body["data"]["retryable"]:  # a caller that comes again at once gets the same
            await asyncio.sleep(min(float(body["data"].get("retry_after", 0.1)), 1.0))
    except (ValueError, KeyError, TypeError):
        account.call("wrong", f"{text} -> no Fault: {said}")
    return "fault"
