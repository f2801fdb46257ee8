"""Callers of all surfaces. Each sends a message, waits for its answer, and goes on in its conversation.

A caller whose connection breaks, or who gets an error, looks at the thread until it is known there what
became of the message. One that reads a stream first reads on, at any replica. A message is never sent twice:
the next one has another text.
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final
from uuid import uuid4

import httpx2

from ..rest_stream import Stream
from .project import AGENT
from .surfaces import CALL_SECONDS, KINDS, Addresses, FailedCall, RestSurface, surface_of

ABSENT_SECONDS: Final = 8.0
"""Seconds without a trace of the message after which a caller believes that it was not taken."""
TURNS: Final = 8
"""Turns of a caller's own conversation before it begins another one."""


@dataclass(slots=True)
class Sent:
    """One message. Times are Unix seconds; ``outcome`` is what its caller knows at last."""

    token: str
    caller: str
    thread: str
    at: float
    outcome: str = "open"
    over: float = 0.0


@dataclass(slots=True)
class Account:
    """What callers saw. ``errors`` counts what came back instead of an answer, by surface and kind."""

    sent: list[Sent] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def error(self, surface: str, failed: FailedCall) -> None:
        name = f"{surface}: {failed.kind}"
        self.errors[name] += 1
        self.examples.setdefault(name, failed.text[:300])


class CallerTask:
    """One caller until ``over``. With ``thread`` it shares that conversation with others."""

    def __init__(
        self,
        number: int,
        addresses: Addresses,
        http: httpx2.AsyncClient,
        account: Account,
        over: asyncio.Event,
        *,
        pause: float,
        seed: int,
        thread: str = "",
    ) -> None:
        self.kind = KINDS[number % len(KINDS)]
        self.surface = surface_of(self.kind, addresses, http)
        self.surface.told = lambda failed: account.error(f"{self.kind}, read on", failed)
        self._name = f"{self.kind}{number}"
        self._http, self._account, self._over, self._pause = http, account, over, pause
        self._chance = random.Random(f"{seed}-{number}")
        self._shared = thread
        self.hung = ""

    @property
    def streams(self) -> list[Stream]:
        """What it got over REST."""
        return self.surface.streams if isinstance(self.surface, RestSurface) else []

    async def run(self) -> None:
        """Send message after message."""
        thread, turns, number = self._shared, 0, 0
        while not self._over.is_set():
            if not self._shared and turns % TURNS == 0:
                thread = await self._new_thread()
            turns += 1
            number += 1
            sent = Sent(f"{self._name}.{number}", self._name, thread, time())
            self._account.sent.append(sent)
            await self._send(sent)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._chance.uniform(0, 2 * self._pause)):
                    await self._over.wait()
        await self.surface.close()

    async def _send(self, sent: Sent) -> None:
        try:
            answer = await self.surface.send(sent.token, sent.thread)
        except FailedCall as failed:
            self._account.error(self.kind, failed)
            sent.outcome = await self._look(sent)
        else:
            right = answer == f"done {sent.token}"
            sent.outcome = "answered" if right else f"wrong: {answer[:100]}"
        sent.over = time()

    async def _look(self, sent: Sent) -> str:
        """What the thread says of a message, once it says something: seen, error, absent or hung."""
        began = last = monotonic()
        while monotonic() - began < 2 * CALL_SECONDS:
            status = await self.status(sent)
            if status is None or status == "pending":
                last = monotonic()
            elif status:
                return "seen" if status == "complete" else "error"
            elif monotonic() - last > ABSENT_SECONDS:
                return "absent"
            await asyncio.sleep(self._chance.uniform(0.3, 0.9))
        self.hung = f"{sent.token} is still {status} in {sent.thread}"
        return "hung"

    async def status(self, sent: Sent) -> str | None:
        """The status of its row; empty if there is none, None if no replica says."""
        try:
            path = f"/threads/{sent.thread}/messages"
            answer = await self._http.get(path, params={"agent": AGENT, "order": "desc", "limit": 100})
            if answer.status_code == 404:
                return ""
            if answer.status_code != 200:
                return None
            rows = answer.json()["items"]
        except (httpx2.HTTPError, ValueError):
            return None
        return next(
            (row["status"] for row in rows if row["role"] == "user" and row["content"] == sent.token), ""
        )

    async def _new_thread(self) -> str:
        """A handle of the caller's own, or where the surface needs one a thread that exists."""
        if self.kind in ("mcp", "handshake"):
            return str(uuid4())
        return await new_thread(self._http)


async def new_thread(http: httpx2.AsyncClient) -> str:
    """The id of a new thread, as soon as a replica makes it."""
    while True:
        with suppress(httpx2.HTTPError, ValueError):
            answer = await http.post(f"/agents/{AGENT}/threads", json={})
            if answer.status_code == 201:
                return str(answer.json()["id"])
        await asyncio.sleep(0.3)
