"""Asks MCP servers of a project what they offer now, for replays of what they offered before."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pallas.config import Project
from pallas.downstreams.offer import each_name_once, offer_of
from pallas.downstreams.raw_streams import was_silent
from pallas.downstreams.result_fit import LeftOut
from pallas.executors.server_offers import offer_value, stored_offer
from pallas.model import Fault, FaultType
from pallas.model.codec import decode, dumps, encode_as, loads
from pallas.model.server_offer import ServerOffer
from pallas.safe_text import one_line
from pallas.toolbox.server_connection import connected
from pallas.toolbox.server_endpoint import downstream_endpoint

from .reload.server_digest import server_digest
from .startup import children_use_our_python

ASK_SECONDS: Final = 60.0
"""For one server: its program may have to be downloaded first."""
MAX_KNOWN: Final = 100
"""Offers that are remembered."""
_AT_A_TIME: Final = 4


@dataclass(frozen=True, slots=True)
class AskedServer:
    """What a server offers now; else why that is not known, as the end of a sentence."""

    offer: ServerOffer | None = None
    problem: str = ""


class AskedServers:
    """Starts or connects a server, has it list its tools, and leaves it; no tool is called.

    A server whose entry and files are as when it was asked last is not asked again. One event loop only.
    """

    def __init__(self, seconds: float = ASK_SECONDS) -> None:
        self._seconds = seconds
        self._known: dict[tuple[str, str], AskedServer] = {}
        self._free = asyncio.Semaphore(_AT_A_TIME)

    async def ask(self, project: Project, names: Collection[str]) -> Mapping[str, AskedServer]:
        """What these servers offer, by name. A server that cannot be asked has a ``problem``.

        Takes ``seconds`` for each at most, several at the same time.
        """
        children_use_our_python()
        found = await asyncio.gather(*(self._ask(project, name) for name in names))
        return dict(zip(names, found, strict=True))

    def remembered(self) -> frozenset[str]:
        """What is remembered, each server as a text for ``remember``."""
        return frozenset(
            dumps([*key, loads(encode_as(ServerOffer, each.offer))]).decode()
            for key, each in self._known.items()
        )

    def remember(self, text: str) -> None:
        """Remember what another one did. Raises ValueError, Undecodable."""
        name, digest, offer = loads(text)
        self._known[name, digest] = AskedServer(decode(ServerOffer, offer))

    async def _ask(self, project: Project, name: str) -> AskedServer:
        key = name, await asyncio.to_thread(server_digest, project, name)
        if (known := self._known.get(key)) is not None:
            return known
        try:
            async with self._free, asyncio.timeout(self._seconds):
                found = AskedServer(await _offer_in_time(project, name))
        except TimeoutError:
            return AskedServer(problem=f"it did not list its tools within {self._seconds:g} s")
        except Fault as fault:
            return AskedServer(problem=one_line(fault.message, 400))
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = found
        return found


async def _offer_in_time(project: Project, name: str) -> ServerOffer:
    """The same as ``_offer``; a program that is slow to start is started again."""
    while True:
        try:
            return await _offer(project, name)
        except Fault as fault:
            if fault.__cause__ is None or not was_silent(fault.__cause__):
                raise


async def _offer(project: Project, name: str) -> ServerOffer:
    """What a server offers now. Raises Fault; has no deadline."""
    endpoint = downstream_endpoint(project, name)
    if endpoint is None:
        raise Fault(FaultType.CONFIG, "it is not under mcp.servers any more")
    if problem := endpoint.config.not_configured:
        raise Fault(FaultType.CONFIG, problem)
    left_out: list[LeftOut] = []
    async with connected(endpoint, left_out=left_out) as client:
        offer = each_name_once(await offer_of(client, left_out))
    stored = await asyncio.to_thread(stored_offer, offer_value(name, offer, offer.instructions or ""))
    return decode(ServerOffer, loads(stored.body))
