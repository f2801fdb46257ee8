"""The fleet's control API, as far as the soak needs it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2

from pallas.model import Event
from pallas.model.codec import decode_event


class FleetControl:
    """Reads the fleet's events and asks things of it, with a token."""

    def __init__(self, origin: str, token: str) -> None:
        self._http = httpx2.AsyncClient(
            base_url=f"{origin}/api/v1/fleet",
            headers={"authorization": f"Bearer {token}"},
            timeout=30,
            trust_env=False,
        )

    async def close(self) -> None:
        """End the connections."""
        await self._http.aclose()

    async def snapshot(self) -> dict[str, Any]:
        """The fleet as it is."""
        answer = await self._http.get("/snapshot")
        found: dict[str, Any] = answer.json()["snapshot"]
        return found

    async def ask(self, path: str) -> bool:
        """Ask for a change; whether it was taken."""
        return (await self._http.post(path)).status_code == 202

    async def follow(self, hear: Callable[[Event], None], missed: Callable[[int], None]) -> None:
        """Hear every event until cancelled; ``missed`` is told how many left the ring unread."""
        last = ""
        while True:
            try:
                headers = {"last-event-id": last} if last else {}
                async with self._http.stream("GET", "/events", headers=headers, timeout=30) as stream:
                    kind = data = ""
                    async for line in stream.aiter_lines():
                        name, _, value = line.partition(": ")
                        if name == "event":
                            kind = value
                        elif name == "data":
                            data += value
                        elif name == "id":
                            last = value
                        elif not line and data:
                            if kind == "events":
                                _events(json.loads(data), hear, missed)
                            kind = data = ""
            except httpx2.HTTPError:
                await asyncio.sleep(0.2)


def _events(document: Any, hear: Callable[[Event], None], missed: Callable[[int], None]) -> None:
    missed(document["dropped"])
    for each in document["events"]:
        if (event := decode_event(each)) is not None:
            hear(event)
