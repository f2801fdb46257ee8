"""Agents in plain Python: what one writes, and what it is told (SPEC 7.4, ``AgentHandler``).

``docs/handlers.md`` begins with one in ten lines.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from pallas.model import Image, Message, Usage

__all__ = [
    "AgentHandler",
    "Chunk",
    "Error",
    "Final",
    "Image",
    "Message",
    "PromptRequest",
    "PromptResult",
    "Session",
    "StopReason",
    "StreamEvent",
    "Usage",
]

StopReason = Literal["end_turn", "max_turns", "cancelled", "max_tokens", "content_filter"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Session:
    """A session of this agent (SPEC 7.4): ``id`` has 32 hex digits, ``metadata`` is what its maker said."""

    id: str
    agent: str = ""
    metadata: Mapping[str, Any] = _NOTHING


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One message for a handler, all of it values; there is nothing to call on it.

    ``history`` are the conversation's messages before this one, oldest first. ``session`` is the session that
    it came in, None without one; ``thread`` names the conversation, empty for one that nobody can come back
    to. ``principal`` is the id of who asks; ``params`` are those of the run, merged, by their names in
    snake_case; ``metadata`` is the session's. ``stream``: the caller hears the text as it is written.

    A caller who goes away, a deadline and a ``cancel`` all cancel the task that runs the handler: it sees
    ``asyncio.CancelledError`` where it waits.
    """

    text: str
    images: tuple[Image, ...] = ()
    history: tuple[Message, ...] = ()
    session: Session | None = None
    thread: str = ""
    principal: str = "anonymous"
    params: Mapping[str, Any] = _NOTHING
    run_id: str = ""
    agent: str = ""
    metadata: Mapping[str, Any] = _NOTHING
    stream: bool = False


@dataclass(frozen=True, slots=True)
class PromptResult:
    """What a handler answers; ``usage`` where it knows how many tokens that took."""

    text: str
    stop_reason: StopReason = "end_turn"
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the answer; those of one stream are joined as they come. ``index`` is for its reader."""

    text: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a stream: ``result`` is the whole answer, whatever was in the chunks before."""

    result: PromptResult | str


@dataclass(frozen=True, slots=True)
class Error:
    """The end of a stream that failed; its caller reads ``message``."""

    message: str
    retryable: bool = False


StreamEvent = Chunk | Final | Error


@runtime_checkable
class AgentHandler(Protocol):
    """An agent in plain Python. ``id`` is its name, and one of the two methods below is needed.

    All others are optional and found by their names: ``capabilities`` (words for what it can do), ``vision``
    (True: it takes pictures), ``on_session_create(session)``, ``on_session_close(session, reason)`` and
    ``cancel(session)``. Every method is written with ``async def``; one that is not is refused when the
    handler is registered, as nothing in a fleet may block its loop. The names of SPEC 7.4
    (``onSessionCreate``, ``onSessionClose``) are understood as well.

    * ``async def prompt(request: PromptRequest) -> PromptResult | str`` answers at once;
    * ``async def stream(request: PromptRequest)`` yields ``Chunk``, ``Final`` and ``Error``. A stream that
      ends without ``Final`` is its chunks, joined.
    * ``on_session_create`` that raises: there is no session, and whoever asked is told so (UPSTREAM).
      ``on_session_close`` that raises: it is closed all the same. Each has ten seconds.
    """

    @property
    def id(self) -> str:
        """The agent's name: ``[a-z0-9][a-z0-9._-]*`` (SPEC C20)."""
        ...


class Prompting(AgentHandler, Protocol):
    """A handler that answers at once."""

    async def prompt(self, request: PromptRequest) -> PromptResult | str:
        """Answer one message."""
        ...


class Streaming(AgentHandler, Protocol):
    """A handler that writes its answer piece by piece."""

    def stream(self, request: PromptRequest) -> AsyncIterator[StreamEvent]:
        """Answer one message: an ``async def`` with ``yield`` in it."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """A handler as it was given to a fleet; each time it is given, it is another one."""

    handler: Any = field(repr=False)
