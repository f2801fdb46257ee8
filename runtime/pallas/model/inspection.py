"""What can be looked up about an agent and about a run, as values: fetched when somebody asks."""

from dataclasses import dataclass, field
from typing import Literal

Side = Literal["inbound", "downstream"]
"""``inbound``: a request that an agent answered; ``downstream``: one that it made."""


@dataclass(frozen=True, slots=True)
class ToolDetail:
    """A tool as its server lists it. The schemas are JSON texts, ``output_schema`` empty for none."""

    name: str
    title: str = ""
    description: str = ""
    input_schema: str = "{}"
    output_schema: str = ""


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """What differs in a tool list from the one seen before; ``since`` is when that one was seen."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    since: float | None = None

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


@dataclass(frozen=True, slots=True)
class ServerDetail:
    """An MCP server and its tools; ``server`` is empty for the agent's own endpoint.

    ``problem`` says in one line why there are no tools.
    """

    server: str
    tools: tuple[ToolDetail, ...] = ()
    changes: ToolChanges = field(default_factory=ToolChanges)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PayloadDetail:
    """What a typed handler takes: the name of its class, its JSON schema as text, an example as XML."""

    name: str
    input_schema: str = "{}"
    example: str = ""


@dataclass(frozen=True, slots=True)
class AgentDetail:
    """Everything about an agent that does not fit on a line.

    ``source`` is where it is configured (``agents.yaml:12``), ``defined`` where its code or card is
    (``agents/research.py:8``), ``registry_entry`` its JSON in the registry, ``payload`` what it takes, None
    for an agent that takes text, ``peers`` those that it may send messages to. All text is sanitised.
    """

    name: str
    source: str = ""
    defined: str = ""
    instruction: str = ""
    registry_entry: str = ""
    servers: tuple[ServerDetail, ...] = ()
    payload: PayloadDetail | None = None
    peers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What a tool that was called by hand gave back: ``content`` is the result as JSON text."""

    ok: bool
    content: str
    seconds: float
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Exchange:
    """One JSON-RPC request of a run and its answer, as they went over the wire, secrets masked.

    ``peer`` is the downstream's name, or the caller's for an ``inbound`` one. Headers hold no credential,
    only its fingerprint. ``cut`` says that a body was longer than what is kept. ``status`` is the HTTP
    status, None for stdio and where no answer came; ``seconds`` is None while there is none.
    """

    run_id: str
    at: float
    side: Side
    peer: str
    method: str
    request: str = ""
    response: str = ""
    request_headers: tuple[tuple[str, str], ...] = ()
    response_headers: tuple[tuple[str, str], ...] = ()
    status: int | None = None
    seconds: float | None = None
    span_id: str = ""
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message between handlers as it is kept for operators; the fields as in ``MessagePassed``.

    ``xml`` is the whole envelope (SPEC 5.1), masked and sanitised, ``cut`` where it was too long to keep;
    ``seconds`` is how long ``to`` took with it, None where that is not over or nobody got it.
    """

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
    xml: str = ""
    cut: bool = False
    seconds: float | None = None
