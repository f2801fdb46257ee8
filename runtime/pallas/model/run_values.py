"""A run: its request, its messages, and its result."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from .money import NO_COST, Cost
from .params import NO_PARAMS, Params
from .spend_limits import ANY, SpendLimits
from .steps import StepDetail
from .trace import TraceContext

Role = Literal["user", "assistant", "tool"]
STREAMED_SURFACES: Final = frozenset({"rest", "fork"})
"""The surfaces whose runs have a stream of chunks that is stored, and goes on in another fleet."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as it is sent."""

    data: str  # base64
    mime_type: str  # for example ``image/png``


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that a model asks for."""

    id: str
    name: str  # ``server__tool``
    arguments: Mapping[str, Any] = field(default_factory=dict)  # plain JSON values


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """The result of a tool call, as text."""

    call_id: str
    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a thread."""

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    # The executor's own form of it, opaque to all others
    native: Any = field(default=None, compare=False, repr=False)
    calls: tuple[ToolCall, ...] = ()  # those that an ``assistant`` entry asks for
    # Of a ``tool`` entry: the results of all calls of the entry before it; ``text`` joins them
    answers: tuple[ToolAnswer, ...] = ()
    summary: bool = False  # models see this entry in place of all entries before it

    @property
    def size(self) -> int:
        """About how much memory it takes: the characters of its text and pictures."""
        return len(self.text) + sum(len(image.data) for image in self.images)


@dataclass(frozen=True, slots=True)
class Principal:
    """The caller. Two principals are the same if their ids are.

    It holds no token, and nothing that a token says of a person. ``control:full`` and ``control:read`` are
    the ids of the control API's tokens.
    """

    # ``anonymous``, ``bearer:FINGERPRINT`` of an unchecked token (``.CLAIM`` is appended for a JWT: the
    # fingerprint of its issuer and subject), ``token:NAME`` of the project, or ``jwt:ISSUER:FINGERPRINT``
    id: str = "anonymous"
    credential: str = field(default="", compare=False)  # the salted fingerprint of the token
    # Those of a verified token
    scopes: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    # The user who started the fleet, on the same machine, shown by the token in that user's file
    is_local: bool = field(default=False, compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the caller's bearer, as in an AuthHop; empty for anonymous."""
        return self.credential or ("" if self.id == "anonymous" else self.id.rpartition(":")[2])

    @property
    def name(self) -> str:
        """The caller's verified name, short enough to show; empty if it is not verified."""
        kind, _, rest = self.id.partition(":")
        if kind in ("anonymous", "bearer"):
            return ""
        issuer, _, subject = rest.rpartition(":")
        return f"jwt:{issuer}:{subject[:8]}" if kind == "jwt" else self.id

    @property
    def is_unverified(self) -> bool:
        """Whether its bearer was not checked."""
        return self.id.startswith("bearer:")

    @property
    def claim(self) -> str:
        """The fingerprint of the issuer and subject that an unverified JWT claims; else empty."""
        return self.id.partition(".")[2] if self.is_unverified else ""

    @property
    def shown(self) -> str:
        """The name to show; ``unverified:1a2b3c4d`` for a claim."""
        return f"unverified:{self.claim[:8]}" if self.claim else self.name


ANONYMOUS = Principal()

MAX_TOKENS: Final = 2**53
"""The largest plausible token count of one run."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one run as the provider counted them; None if it gave none, or an impossible number."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    # What it cost, in nano-US-dollars: of an executor's turn only what is in no step of its run
    cost: int | None = None
    unpriced: int = 0  # how many answers of models no price is known of

    def __post_init__(self) -> None:
        # The numbers come from outside. A larger one fits neither a database column nor a float.
        for name in ("input_tokens", "output_tokens"):
            if not 0 <= (getattr(self, name) or 0) <= MAX_TOKENS:
                object.__setattr__(self, name, None)

    def __add__(self, other: "Usage") -> "Usage":
        """The sum of both; a count is None if neither has it."""
        pairs = (self.input_tokens, other.input_tokens), (self.output_tokens, other.output_tokens)
        taken, given = (None if pair == (None, None) else sum(each or 0 for each in pair) for pair in pairs)
        spent = Cost.of(self) + other
        return Usage(taken, given, spent.cost, spent.unpriced)

    @property
    def without_steps(self) -> "Usage":
        """Of a turn whose answers are no steps: one without a known price, if it has tokens and no cost."""
        has_tokens = self.input_tokens is not None or self.output_tokens is not None
        return replace(self, unpriced=1) if has_tokens and self.cost is None else self

    @property
    def tokens(self) -> "Usage":
        """The tokens alone."""
        return Usage(self.input_tokens, self.output_tokens)


@dataclass(frozen=True, slots=True)
class RunFork:
    """Where a run goes on from another one, instead of at its own question."""

    run: str  # the id of the other run
    step: int  # the number of its step that is done once more, other than it was
    said: tuple[Message, ...] = ()  # what that run had said after its question
    # Results of calls in the last message of ``said``, by call id, as JSON texts of MCP's CallToolResult; its
    # other calls are made again
    results: Mapping[str, str] = field(default_factory=dict, hash=False)
    steps: tuple[StepDetail, ...] = ()  # those before ``step``, which become steps of the new run too


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A message to an agent, with its options."""

    agent: str
    text: str
    images: tuple[Image, ...] = ()
    # The caller's handle; without handle and session nothing is remembered
    conversation: str | None = None
    session: str | None = None  # a handshake-era MCP session, which is a conversation of its own
    principal: Principal = ANONYMOUS
    # Put before the messages of a new conversation; overrides nothing stored (PR-18)
    history: tuple[Message, ...] = ()
    # Whether the caller gets the text while it is written, also that of agents below
    stream_text: bool = False
    # Id or handle of the conversation whose messages ``history`` has, if its new one is a branch of that
    branch_of: str = ""
    new_conversation: bool = False  # the handle was made for this request
    caller: str = ""  # the client's name for itself, sanitised
    trace: TraceContext | None = None  # the caller's span, if it sent one
    params: Params = NO_PARAMS  # the caller's own, over the agent's defaults
    # How the message came in: ``mcp``, ``rest``, ``chat``, ``agent-tool``; ``peer`` and ``handler`` from
    # another agent of the fleet
    surface: str = "mcp"
    run_id: str = ""  # the id for the run, empty to have one made; an id in use is refused
    defaults: Params = NO_PARAMS  # the session's parameters, between the agent's and the caller's own
    provider: str = ""  # the session's choice, empty for the agent's default
    timeout: float | None = None  # seconds, including the wait for its turn
    leased: str = ""  # the id of its session, or empty
    # The agent of this fleet that asks, set only by the fleet; empty for a caller from outside
    sender: str = ""
    depth: int = 0  # how many runs of the fleet are above this one
    above: tuple[str, ...] = ()  # the agents of the runs that wait for this one, outermost first
    within: str = ""  # the id of the run that asks, empty from outside
    fork: RunFork | None = field(default=None, repr=False)
    limits: SpendLimits = ANY  # what its caller allows it; can only lower what the files say
    bearer: str | None = field(default=None, repr=False)
    # Its caller sent a bearer, which was lost with the fleet that got it
    bearer_lost: bool = False

    @property
    def is_nested(self) -> bool:
        """Whether a durable run asks for it, and waits for it wherever both go on."""
        return self.surface == PEER and bool(self.within and self.conversation)


PEER: Final = "peer"
"""The surface of a run that a model asks of a peer."""
ROUTER: Final = "router"
"""That of a run that a router asks of the agent it chose."""
OF_AGENTS: Final = (PEER, ROUTER)
"""The surfaces of runs whose threads are their callers' own affair: no list shows them."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run. Its ``usage`` has its own cost, without that of the runs below it."""

    run_id: str
    texts: tuple[str, ...]  # all assistant texts in order; the last one is the answer
    conversation: str | None
    seconds: float
    steps: int = 0
    tools: int = 0
    usage: Usage = Usage()
    stop_reason: str = "endTurn"
    thread: str = ""  # the durable thread it was written to, empty if it is not stored
    turn_index: int | None = None  # the row of the answer in it, None if it is not stored
    backend: str = ""  # the provider that answered, if the agent has a choice
    routed: str = ""  # the agent that a router chose
    # Why another provider answered than the requested one, a line each (DR-32)
    rerouted: tuple[str, ...] = ()
    # MCP servers whose tools were unavailable, with the reason
    missing: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()  # shown with the answer, a line each
    tree: Cost = NO_COST  # what it and the runs below it cost

    @property
    def who_answered(self) -> dict[str, Any]:
        """Provider, agent, reroutes, missing servers and notices, as documents have them; only those that are
        set.
        """
        facts = {
            "backend": self.backend,
            "routed": self.routed,
            "rerouted": list(self.rerouted),
            "missingServers": dict(self.missing),
            "notices": list(self.notices),
        }
        return {key: value for key, value in facts.items() if value}

    @property
    def text(self) -> str:
        """All assistant text of the run, in order."""
        return "\n\n".join(text for text in self.texts if text)
