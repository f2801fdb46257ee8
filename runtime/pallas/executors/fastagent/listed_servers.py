"""What the servers of one agent list, and what of it cannot be used: told once for each change."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pallas.downstreams.offer import Offer
from pallas.downstreams.result_fit import LeftOut
from pallas.model.server_connection import MAX_NAMED, named
from pallas.model.server_offer import StoredOffer
from pallas.safe_text import one_line

from ..server_offers import offer_value, stored_offer

log = logging.getLogger(__name__)

_MAX_TOLD: Final = 1_000
_MAX_TEXT: Final = 300


@dataclass(frozen=True, slots=True)
class Listed:
    """What a server listed last. ``tools`` counts those that can be used."""

    version: str = ""
    tools: int = 0
    left_out: tuple[str, ...] = ()
    """What is left out whole or in part, with reasons, at most ``MAX_NAMED``."""
    left_out_count: int = 0
    problem: str = ""
    """Why no tool can be used, as the end of a sentence; empty if one can, or the server has none."""


class ListedServers:
    """What the servers of the agent list, by all of its instances: the last list counts.

    ``forwarded`` says whether a server gets the caller's bearer. It may list other things to each caller, so
    its offer is not kept.
    """

    def __init__(self, agent: str, forwarded: Callable[[str], bool]) -> None:
        self._agent = agent
        self._forwarded = forwarded
        self._offers: dict[str, StoredOffer] = {}
        self._servers: dict[str, Listed] = {}
        self._told: dict[str, frozenset[str]] = {}

    def __getitem__(self, server: str) -> Listed:
        return self._servers.get(server) or Listed()

    @property
    def offers(self) -> Mapping[str, StoredOffer]:
        """What agents could use of each server when it listed its tools last."""
        return self._offers

    async def keep(self, server: str, offer: Offer, instructions: str | None) -> None:
        """Keep an offer, as the agent can use it, for the runs that follow."""
        if not self._forwarded(server):
            stored = await asyncio.to_thread(_stored, server, offer, instructions or "")
            self._offers = {**self._offers, server: stored}

    def note(self, server: str, offer: Offer) -> None:
        """Take what a server lists now; log what is new in what cannot be used."""
        found = tuple(dict.fromkeys(one_line(str(each), _MAX_TEXT) for each in offer.left_out))
        problem = _problem(offer)
        self._servers[server] = Listed(
            offer.version, len(offer.tools), found[:MAX_NAMED], len(found), problem
        )
        told = self._told.get(server, frozenset())
        now = frozenset((*found, problem) if problem else found)
        # Callers may get different lists: what one of them has got is not told again for another one.
        self._told[server] = told | now if now and len(told) < _MAX_TOLD else now
        if now - told:
            text = problem or f"lists items that cannot be used and are left out: {named(found, len(found))}"
            self._warn(server, text)

    def _warn(self, server: str, text: str) -> None:
        name = one_line(server, 80)
        extra = {"agent": self._agent, "downstream": name}
        log.warning("%s: server %s %s", self._agent, name, one_line(text, 1_000), extra=extra)


def _stored(server: str, offer: Offer, instructions: str) -> StoredOffer:
    return stored_offer(offer_value(server, offer, instructions))


def _problem(offer: Offer) -> str:
    """Why no tool can be used."""
    if offer.tools:
        return ""
    whole = [each for each in offer.left_out if each.kind == "tool" and not each.part]
    if whole:
        return f"lists no tool that can be used: {named(_reasons(whole), len(whole))}"
    # Many servers announce all kinds of things: one that has prompts or resources need not have tools.
    has_others = bool(offer.prompts) or offer.has_resources
    return "announces tools and lists none" if offer.announces_tools and not has_others else ""


def _reasons(left_out: Sequence[LeftOut]) -> tuple[str, ...]:
    return tuple(
        one_line(each.why if each.name == "all tools" else f"{each.name}: {each.why}", _MAX_TEXT)
        for each in left_out[:MAX_NAMED]
    )
