"""The chunks of one run over the REST API, read on after a break, at any replica."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2

from pallas.model.refusals import OTHERS

PER_ATTEMPT: Final = 1_000_000
"""The chunks of attempt 2 are numbered from this on."""

Chunk = dict[str, Any]


@dataclass(slots=True)
class Stream:
    """What came so far, over all connections that brought it.

    ``numbered``: whether the present connection gives numbers. Only streams of a request with a key, and
    those that are read on, do; the first chunk of others is number 1. ``fault`` is the error that ended the
    last connection, and ``has_failed`` whether it is the end of the run. ``problems`` are gaps and repeats.
    """

    run: str = ""
    last: int = 0
    numbered: bool = True
    is_whole: bool = False
    has_failed: bool = False
    fault: dict[str, Any] | None = None
    resumed: int = 0
    chunks: dict[int, Chunk] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _number: int = 0
    _pieces: list[str] = field(default_factory=list)

    def request(
        self, prefix: str, agent: str, body: Mapping[str, Any], headers: Mapping[str, str], key: str = ""
    ) -> dict[str, Any]:
        """The next request of the caller: to read on if the run is known, else to send the message."""
        self.fault, self._number = None, 0
        if self.run:
            self.numbered = True
            self.resumed += 1
            after = {**headers, "Last-Event-ID": str(self.last)}
            return {"method": "GET", "url": f"{prefix}/runs/{self.run}/events", "headers": after}
        self.numbered = bool(key)
        return {
            "method": "POST",
            "url": f"{prefix}/agents/{agent}/chat",
            "headers": {**headers, **({"Idempotency-Key": key} if key else {})},
            "json": {**body, "stream": True},
        }

    async def follow(self, answer: httpx2.Response) -> None:
        """Take what a response with status 200 brings, to its end."""
        self.run = answer.headers.get("pallas-run-id", self.run)
        async for line in answer.aiter_lines():
            self.read(line)

    def read(self, line: str) -> None:
        """Take one line."""
        name, _, value = line.partition(": ")
        if name == "id":
            self._number = int(value)
        if name != "data" or value == "[DONE]":
            return
        number, self._number = self._number, 0
        chunk = json.loads(value)
        if chunk["type"] == "error":
            self.fault = {"error": chunk["message"], "data": chunk["data"]}
            # A reader's own trouble has no number, and a run that goes on elsewhere that of the chunk before.
            if chunk["data"].get("reason") in OTHERS or (self.numbered and not number):
                return
            self.has_failed = True
        self._take(number if self.numbered else self.last + 1, chunk)

    def _take(self, number: int, chunk: Chunk) -> None:
        is_next_attempt = number > self.last + 1 and number % PER_ATTEMPT == 1
        if is_next_attempt and chunk["type"] != "rollback":
            self.problems.append(f"chunk {number} begins another attempt with {chunk['type']}")
        elif number != self.last + 1 and not is_next_attempt:
            self.problems.append(f"chunk {number} follows {self.last}")
        self.last = number
        self.chunks[number] = chunk
        match chunk["type"]:
            case "text":
                self._pieces.append(chunk["delta"])
            case "tool_call" | "tool_result" | "rollback":
                self._pieces.clear()
            case "final":
                self.is_whole = True

    @property
    def text(self) -> str:
        """The answer: what was said after the last tool."""
        return "".join(self._pieces)
