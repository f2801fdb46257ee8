"""Chunks of a run as server-sent events, in the frames of AG-15."""

from collections.abc import AsyncIterator
from typing import Any, Final

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request

from pallas.model import Fault, FaultType, codec

from .chat_chunks import Chunk, error

HEARTBEAT: Final = 10.0
"""Seconds between two comments on an otherwise silent stream."""
SEND_TIMEOUT: Final = 20.0
"""Seconds after which a client that does not read is disconnected."""
DONE: Final = b"data: [DONE]\n\n"
MEDIA: Final = "text/event-stream"
STREAM_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The events", "content": {MEDIA: {"schema": {"type": "string"}}}}
}
"""How a route that answers with events is described."""
# Chunks that the ledger keeps but that are not sent.
HIDDEN: Final = frozenset({"answer"})

_MAX_ID: Final = 10**9


def frame(chunk: Chunk, number: int = 0) -> bytes:
    """Return one message, with its number if it has an id."""
    head = b"id: %d\n" % number if number else b""
    return head + b"data: " + codec.dumps(chunk) + b"\n\n"


def last_event(request: Request) -> int:
    """Return the number of the chunk after which a reader resumes, 0 for the start. Raises Fault
    (PROTOCOL)."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not (given.isascii() and given.isdigit()) or len(given) > 9 or int(given) > _MAX_ID:
        raise Fault(
            FaultType.PROTOCOL,
            "Last-Event-ID: must be the id of a message of this stream; leave it out to begin at the start",
            data={"key": "Last-Event-ID"},
        )
    return int(given)


def wants_stream(request: Request) -> bool:
    """Return whether the Accept header names the media type of streams."""
    return any(
        part.partition(";")[0].strip().lower() == MEDIA
        for value in request.headers.getlist("accept")
        for part in value.split(",")
    )


def event_stream(
    chunks: AsyncIterator[tuple[int, Chunk]],
    *,
    numbered: bool,
    headers: dict[str, str],
    heartbeat: float = HEARTBEAT,
) -> EventSourceResponse:
    """Return a response that sends ``chunks`` as they come, and ``[DONE]`` after the last of any kind."""
    return EventSourceResponse(
        _frames(chunks, numbered),
        headers={
            # Set explicitly: the library would add a charset, which the format does not allow.
            "content-type": MEDIA,
            "cache-control": "no-cache",
            "x-content-type-options": "nosniff",
            **headers,
        },
        ping=heartbeat,
        ping_message_factory=lambda: ServerSentEvent(comment="still here", sep="\n"),
        sep="\n",
        send_timeout=SEND_TIMEOUT,
        cleanup_timeout=1.0,
    )


async def _frames(chunks: AsyncIterator[tuple[int, Chunk]], numbered: bool) -> AsyncIterator[bytes]:
    try:
        async for number, chunk in chunks:
            if chunk.get("type") not in HIDDEN:
                yield frame(chunk, number if numbered else 0)
    except Fault as fault:  # an error of this reader and not of the run: it has no number
        yield frame(error(fault))
    finally:
        close: Any = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
    yield DONE
