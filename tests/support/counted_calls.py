"""Callers of the agents of servers that note what they execute: each call has a number, and ends somehow."""

import asyncio
import itertools
import re
import secrets
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from pallas.fleet.fleet import Fleet

from .counted import CountedServer
from .live import ERAS, tool_call
from .served import Served, text_of
from .waiting import until

LONGEST_S: Final = 120
"""Until a call that does not end counts as lost."""
_DONE: Final = re.compile(r"success|completed|no content|\bok\b|\bdone\b", re.IGNORECASE)
"""What says nothing of a failure."""
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Call:
    """A call that ended. ``text`` is what the caller got, ``version`` the server's if it is the answer."""

    number: int
    text: str
    version: str

    @property
    def is_answered(self) -> bool:
        """Whether it is the tool's answer."""
        return bool(self.version)

    @property
    def is_error(self) -> bool:
        """Whether it says that it failed, and not nothing, or something that reads as if it were done."""
        return bool(not self.is_answered and self.text.strip() and not _DONE.search(self.text))


@dataclass
class Callers:
    """Clients of one agent, in both protocol versions in turn, each with a conversation of its own.

    The agent's model is passthrough, which calls what it is told to.
    """

    server: CountedServer
    clients: Mapping[int, Client]
    numbers: list[int] = field(default_factory=list)
    """Those of all calls so far."""
    conversations: str = field(default_factory=partial(secrets.token_urlsafe, 18))

    async def call(self, tool: str = "count", callers: Collection[int] | None = None) -> list[Call]:
        """Have all of them call the tool at once, or these, and wait for how each call ends."""
        chosen = range(len(self.clients)) if callers is None else callers
        return await asyncio.gather(*(self._call(each, tool) for each in chosen))

    async def _call(self, caller: int, tool: str) -> Call:
        self.numbers.append(number := next(_numbers))
        message = tool_call(f"{self.server.name}__{tool}", number=number)
        arguments = {"message": message, "conversation_id": f"{self.conversations}-{caller}"}
        async with asyncio.timeout(LONGEST_S):
            result = await self.clients[caller].call_tool("send_message", arguments)
        text = text_of(result).removeprefix(message)
        _, _, said = text.partition(f"{tool} {number} by version ")
        return Call(number, text, said[:1])

    @asynccontextmanager
    async def in_flight(self, tool: str = "wait") -> AsyncIterator["asyncio.Task[list[Call]]"]:
        """The calls of all of them, once the server executes each; they end by themselves in the block."""
        self.server.shut("gate")
        before = len(self.server.events("executed"))
        calls = asyncio.create_task(self.call(tool))
        try:
            await until(lambda: len(self.server.events("executed")) == before + len(self.clients))
            yield calls
            await calls
        finally:
            self.server.open("gate")
            calls.cancel()
            await asyncio.wait({calls}, timeout=60)

    def executed_once(self, calls: Collection[Call]) -> bool:
        """Whether each of these was executed, and none of all calls twice."""
        executed = self.server.executed
        return all(executed[each.number] == 1 for each in calls) and self.none_twice()

    def none_twice(self) -> bool:
        """Whether no call was executed twice so far."""
        executed = self.server.executed
        return all(executed[number] <= 1 for number in self.numbers)


@asynccontextmanager
async def callers(fleet: Fleet | Served, server: CountedServer, count: int = 1) -> AsyncIterator[Callers]:
    """So many clients of the agent that is named as its server."""
    if isinstance(fleet, Served):
        url = fleet.url(server.name)
    else:
        url = next(each.url for each in fleet.agents if each.name == server.name)
    clients: dict[int, Client] = {}
    over = asyncio.Event()
    # Plain HTTP: a client that trusts certificates takes 20 ms of a core to be made.
    async with httpx2.AsyncClient(verify=False, timeout=None) as http:
        # Each in a task of its own: what a test raises does not pass through all of them.
        tasks = [asyncio.create_task(_hold(number, url, http, clients, over)) for number in range(count)]
        try:
            await until(lambda: len(clients) == count or any(each.done() for each in tasks))
            yield Callers(server, clients)
        finally:
            over.set()
            done, _ = await asyncio.wait(tasks, timeout=60)
            for each in done:
                each.result()


async def _hold(
    number: int, url: str, http: httpx2.AsyncClient, clients: dict[int, Client], over: asyncio.Event
) -> None:
    async with Client(
        streamable_http_client(url, http_client=http), mode=ERAS[number % len(ERAS)]
    ) as clients[number]:
        await over.wait()
