"""The API of agents in plain Python: what a handler implements, and what it gets (``AgentHandler``).

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
    """A session of this agent."""

    id: str  # 32 hex digits
    agent: str = ""
    metadata: Mapping[str, Any] = _NOTHING  # as given by the client that created it


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """One message for a handler. It holds values only; there is nothing to call on it.

    A caller that disconnects, a deadline and a ``cancel`` all cancel the task that runs the handler: it gets
    ``asyncio.CancelledError`` where it waits.
    """

    text: str
    images: tuple[Image, ...] = ()
    history: tuple[Message, ...] = ()  # the messages before this one, oldest first
    session: Session | None = None  # None outside of a session
    thread: str = ""  # the conversation; empty for one that cannot be continued
    principal: str = "anonymous"  # the id of the caller
    params: Mapping[str, Any] = _NOTHING  # those of the run, merged, in snake_case
    run_id: str = ""
    agent: str = ""
    metadata: Mapping[str, Any] = _NOTHING  # that of the session
    stream: bool = False  # whether the caller gets the text while it is written


@dataclass(frozen=True, slots=True)
class PromptResult:
    """The answer of a handler."""

    text: str
    stop_reason: StopReason = "end_turn"
    usage: Usage | None = None  # None if the number of tokens is unknown


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of the answer. The chunks of a stream are joined in order; ``index`` is for the reader."""

    text: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class Final:
    """The end of a stream. ``result`` is the whole answer and replaces the chunks before it."""

    result: PromptResult | str


@dataclass(frozen=True, slots=True)
class Error:
    """The end of a stream that failed. The caller gets ``message``."""

    message: str
    retryable: bool = False


StreamEvent = Chunk | Final | Error


@runtime_checkable
class AgentHandler(Protocol):
    """An agent in plain Python. ``id`` is its name; it needs one of these two methods:

    * ``async def prompt(request: PromptRequest) -> PromptResult | str`` answers at once.
    * ``async def stream(request: PromptRequest)`` yields ``Chunk``, ``Final`` and ``Error``. Without
      ``Final`` the answer is the chunks, joined.

    All others are optional and found by name: ``capabilities`` (words for what it can do), ``vision`` (True
    if it takes pictures), ``on_session_create(session)``, ``on_session_close(session, reason)`` and
    ``cancel(session)``. Every method is an ``async def``; a handler with another one is refused when it is
    registered, since nothing in a fleet may block its loop. The names of the bridge (``onSessionCreate``,
    ``onSessionClose``) are accepted as well.

    If ``on_session_create`` raises, no session is created and the caller gets a Fault (UPSTREAM). If
    ``on_session_close`` raises, the session is closed all the same. Each call has ten seconds.
    """

    @property
    def id(self) -> str:
        """The agent's name: ``[a-z0-9][a-z0-9._-]*``."""
        ...


class Prompting(AgentHandler, Protocol):
    """A handler that answers at once."""

    async def prompt(self, request: PromptRequest) -> PromptResult | str:
        """Answer one message."""
        ...


class Streaming(AgentHandler, Protocol):
    """A handler that writes its answer piece by piece."""

    def stream(self, request: PromptRequest) -> AsyncIterator[StreamEvent]:
        """Answer one message; an ``async def`` that yields."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Registered:
    """A handler as it was registered with a fleet. Registering the same handler twice makes two of these."""

    handler: Any = field(repr=False)
