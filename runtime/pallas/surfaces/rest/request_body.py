"""The query of a request and its body: bounded in size and time, and JSON in the strict sense."""

import asyncio
import json
import math
from collections.abc import Callable, Collection
from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from pallas.bounds.sizes import MAX_BODY
from pallas.config.notes import did_you_mean
from pallas.model import Fault, FaultType, Page
from pallas.safe_text import one_line

from ..body_limit import drain_body
from .http_faults import HttpFault

MAX_LIMIT: Final = 200

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="How many at most.")]
Cursor = Annotated[
    str,
    Query(
        max_length=500,
        description="The value of `next` in the previous page; empty for the first page.",
        examples=[""],
    ),
]
Filter = Annotated[str, Query(max_length=200)]

# Documented and not enforced: a foreign id is simply not found.
_NAME: Final[dict[str, Any]] = {"pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"}
Which = Annotated[str, Path(max_length=200, description="Its name, or its id", json_schema_extra=_NAME)]
AgentName = Annotated[str, Path(max_length=200, description="The agent", json_schema_extra=_NAME)]
Id = Annotated[str, Path(max_length=200, description="Its id", json_schema_extra=_NAME)]

BODY_TIMEOUT: Final = 60.0


def page_of[T](page: Page[T], make: Callable[[T], Any]) -> dict[str, Any]:
    """Return the page as it is sent: its items, and the cursor for the rest."""
    return {"items": [make(item) for item in page.items], "next": page.next or None}


def plain(*texts: str) -> None:
    """Refuse characters that no name, id or cursor of ours holds. Raises Fault (PROTOCOL)."""
    if any("\0" in text for text in texts):
        raise Fault(FaultType.PROTOCOL, "the query holds a NUL character; leave it out")


class JsonRequest(Request):
    """A request whose body is JSON of at most 4 MiB that arrives within a minute."""

    async def body(self) -> bytes:
        """Return the whole body. Raises HttpFault (413, 408)."""
        if not hasattr(self, "_body"):
            self._body = await self._read()
        return self._body

    async def json(self) -> Any:
        """Return the parsed body. Raises HttpFault (invalid JSON), Fault (values that cannot be stored)."""
        if not hasattr(self, "_json"):
            try:
                found = from_json(await self.body(), allow_inf_nan=False)
            except ValueError as error:
                raise HttpFault(400, f"the body is not JSON: {error}") from None
            _check(found)
            self._json = found
        return self._json

    async def _read(self) -> bytes:
        declared = self.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > MAX_BODY:
            await self._too_large(f"{int(declared[:20])} bytes")
        taken = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                more = True
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    taken += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(taken) > MAX_BODY:
                        await self._too_large(f"more than {MAX_BODY} bytes", more=more)
        except TimeoutError:
            raise HttpFault(408, f"the body did not come within {BODY_TIMEOUT:.0f} s") from None
        return bytes(taken)

    async def _too_large(self, size: str, *, more: bool = True) -> None:
        if more:  # a client that is still sending reads no answer before its body is read
            await drain_body(self.receive)
        raise HttpFault(
            413,
            f"the request has {size}; at most {MAX_BODY}: make images smaller (one has room for about 3 MB, "
            "and base64 adds a third), send fewer at once, or leave out what the thread has already",
            {"connection": "close"},
        )


def expect_json(request: Request) -> None:
    """Refuse a body of another kind before it is read. Raises HttpFault (415)."""
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if not has_body:
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise HttpFault(415, "send the body as application/json")


def expect_query(request: Request, known: Collection[str]) -> None:
    """Refuse a parameter of the query that the route does not take. Raises Fault (PROTOCOL).

    Every path may be asked for a page: one that takes no ``limit`` sends all it has.
    """
    for name in request.query_params:
        if name not in known and name not in ("limit", "cursor"):
            hint = f"known: {', '.join(known)}" if known else "this path takes none"
            if near := did_you_mean(name, (*known, "limit", "cursor")):
                hint = f"{near}; {hint}"
            text = f"{one_line(name, 200)}: there is no such parameter; {hint}"
            raise Fault(FaultType.PROTOCOL, text, data={"key": one_line(name, 200)})


def canonical(value: Any) -> bytes:
    """Return a JSON value in one spelling, for any order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _check(value: Any) -> None:
    """Refuse values that PostgreSQL's text or JSON itself cannot hold."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if "\0" in each:
                raise Fault(FaultType.PROTOCOL, "the body holds a NUL character; leave it out")
        elif isinstance(each, float):
            if not math.isfinite(each):
                raise Fault(FaultType.PROTOCOL, "the body holds a number that is too large")
        elif isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
