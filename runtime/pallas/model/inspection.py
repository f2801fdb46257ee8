"""Details of an agent and of a run, fetched on request."""

from dataclasses import dataclass, field
from typing import Literal

from .tool_lock import ServerLock
from .tool_rules import ToolHint

Side = Literal["inbound", "downstream"]
"""``inbound``: a request to an agent; ``downstream``: a request of an agent."""


@dataclass(frozen=True, slots=True)
class ToolDetail:
    """A tool as its server lists it. Schemas are JSON texts."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: str = "{}"
    output_schema: str = ""  # empty if there is none
    hints: tuple[ToolHint, ...] | None = None  # what its server says of it, None if nothing
    rule: str = ""  # which rule of the agent decides about its calls, empty where there are none


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The difference between a tool list and the previous one."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    since: float | None = None  # when the previous list was seen

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class ResourceDetail:
    """A resource as its server lists it."""

    uri: str  # as it is shown: secrets are masked
    name: str = ""
    title: str = ""
    description: str = ""
    media_type: str = ""
    size: int | None = None  # in bytes, None where the server does not say


@dataclass(frozen=True, slots=True)
class ResourceReading:
    """The contents of a resource, as text."""

    text: str  # contents that are no text are named with their type and size
    at: float  # when it was read
    subscription: str = ""  # by what it is followed; empty if it was read once
    updates: int = 0  # of which the server has notified since the subscription began
    updated_at: float | None = None  # when the last one was heard of
    problem: str = ""  # why it could not be read after an update, one line


@dataclass(frozen=True, slots=True)
class ServerDetail:
    """An MCP server, its tools and its resources."""

    server: str  # empty for the agent's own endpoint
    tools: tuple[ToolDetail, ...] = ()
    changes: ToolChanges = field(default_factory=ToolChanges)
    problem: str = ""  # why there are no tools, one line
    left_out: tuple[str, ...] = ()  # what it lists and cannot be used, with reasons, at most 50
    lock: ServerLock | None = None  # None where it is not compared
    resources: tuple[ResourceDetail, ...] = ()  # at most 500
    subscribes: bool = False  # whether it takes subscriptions to its resources


@dataclass(frozen=True, slots=True)
class PayloadDetail:
    """The payload that a typed handler accepts: its class name, its JSON schema, an example in XML."""

    name: str
    input_schema: str = "{}"
    example: str = ""


@dataclass(frozen=True, slots=True)
class AgentDetail:
    """The details of an agent. All text is sanitised."""

    name: str
    source: str = ""  # where it is configured (``agents.yaml:12``)
    defined: str = ""  # where its code or card is (``agents/research.py:8``)
    instruction: str = ""
    registry_entry: str = ""  # its JSON in the registry
    servers: tuple[ServerDetail, ...] = ()
    payload: PayloadDetail | None = None  # None for an agent that takes text
    peers: tuple[str, ...] = ()  # agents that it may send messages to


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """The result of a tool that was called by hand."""

    ok: bool
    content: str  # the result as JSON text
    seconds: float
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One JSON-RPC request of a run and its response, as sent, with secrets masked.

    Headers hold the fingerprint of a credential, never the credential.
    """

    run_id: str
    at: float
    side: Side
    peer: str  # the downstream's name, or the caller's if ``inbound``
    method: str
    request: str = ""
    response: str = ""
    request_headers: tuple[tuple[str, str], ...] = ()
    response_headers: tuple[tuple[str, str], ...] = ()
    status: int | None = None  # the HTTP status; None for stdio and without a response
    seconds: float | None = None  # None while there is no response
    span_id: str = ""
    cut: bool = False  # a body was longer than what is kept


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message between handlers as stored for operators. Fields as in ``MessagePassed``."""

    run_id: str
    agent: str
    number: int
    at: float
    sender: str
    to: str
    frame: str
    route: str
    outcome: str
    parent: str = ""
    left: str = ""
    payload: str = ""
    code: str = ""
    detail: str = ""
    xml: str = ""  # the whole envelope, masked and sanitised
    cut: bool = False  # it was too long to keep
    seconds: float | None = None  # how long ``to`` took; None if it is not over, or was not delivered
