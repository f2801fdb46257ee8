"""A run: one message in, a result or a Fault out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .params import NO_PARAMS, Params
from .trace import TraceContext

Role = Literal["user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture as it travels: ``data`` is base64, ``mime_type`` for example ``image/png``."""

    data: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What a model decided to call: ``name`` is ``server__tool``, ``arguments`` are plain JSON values."""

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What came of the call of that id, as text."""

    call_id: str
    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Message:
    """One entry of a thread. ``native`` is the executor's own form of it, opaque to everyone else.

    ``calls`` are those that an ``assistant`` entry asks for. A ``tool`` entry holds the answers to all calls
    of the entry before it; its text is what they said, one after the other. ``summary`` says that it stands
    for all that was said before it.
    """

    role: Role
    text: str
    images: tuple[Image, ...] = ()
    native: Any = field(default=None, compare=False, repr=False)
    calls: tuple[ToolCall, ...] = ()
    answers: tuple[ToolAnswer, ...] = ()
    summary: bool = False

    @property
    def size(self) -> int:
        """About how much memory it takes: characters of text and of pictures."""
        return len(self.text) + sum(len(image.data) for image in self.images)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is asking; two are the same when their ids are, whatever they show.

    ``id`` is ``anonymous``, ``bearer:FINGERPRINT`` of a token that nobody checked (with ``.CLAIM`` after it,
    the fingerprint of the issuer and subject that it claims, where it is a JWT), ``token:NAME`` of one of the
    project's, or ``jwt:ISSUER:FINGERPRINT`` of a subject; ``credential`` the salted fingerprint of what
    was shown, ``scopes`` what the token is good for where it was verified. Never a token, and nothing that a
    token says of a person. ``control:full`` and ``control:read`` hold a token of the control API.
    ``is_local``: the user who started the fleet, on the same machine, shown by the token in that user's file.
    """

    id: str = "anonymous"
    credential: str = field(default="", compare=False)
    scopes: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    is_local: bool = field(default=False, compare=False, repr=False)

    @property
    def fingerprint(self) -> str:
        """That of the caller's bearer, as an AuthHop tells it; empty for anonymous."""
        return self.credential or ("" if self.id == "anonymous" else self.id.rpartition(":")[2])

    @property
    def name(self) -> str:
        """Who it is, where that was verified, short enough to be shown; else empty."""
        kind, _, rest = self.id.partition(":")
        if kind in ("anonymous", "bearer"):
            return ""
        issuer, _, subject = rest.rpartition(":")
        return f"jwt:{issuer}:{subject[:8]}" if kind == "jwt" else self.id

    @property
    def is_unverified(self) -> bool:
        """Whether it is known by a bearer that no one checked."""
        return self.id.startswith("bearer:")

    @property
    def claim(self) -> str:
        """The fingerprint of the issuer and subject that an unverified JWT claims; else empty."""
        return self.id.partition(".")[2] if self.is_unverified else ""

    @property
    def shown(self) -> str:
        """Who it is or claims to be, in short: ``unverified:1a2b3c4d`` where it is a claim."""
        return f"unverified:{self.claim[:8]}" if self.claim else self.name


ANONYMOUS = Principal()

MAX_TOKENS: Final = 2**53
"""Tokens of one run that are believed."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one run as the provider counted them; None where it did not, or said what cannot be."""

    input_tokens: int | None = None
    output_tokens: int | None = None

    def __post_init__(self) -> None:
        # Foreign numbers: a larger one fits neither a database nor a float, and what it breaks is the run.
        for name in ("input_tokens", "output_tokens"):
            if not 0 <= (getattr(self, name) or 0) <= MAX_TOKENS:
                object.__setattr__(self, name, None)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a caller asks of an agent.

    ``conversation`` is the caller's handle; else ``session`` names a handshake-era MCP session that is a
    conversation of its own; with neither nothing is remembered (C12). ``history`` overrides nothing
    stored: it is put before the conversation's own messages when that conversation is new (PR-18).
    ``stream_text``: the caller hears the text as it is written, from the agents below as well.
    ``new_conversation``: the handle was made for this very request. ``caller`` is what the client calls
    itself, sanitised; ``trace`` the span that asked, None where the caller sends none. ``params`` are the
    caller's own, laid over the agent's defaults. ``surface`` is how the message came in (``mcp``, ``rest``,
    ``chat``, ``agent-tool``; ``peer`` and ``handler`` from another agent of the fleet). ``run_id`` is what
    the run is to be called, empty to have that made; one that is taken is refused. ``defaults`` are the
    session's parameters, between the agent's and the caller's own (C15); ``provider`` is the one that the
    session chose, empty for the agent's default. ``timeout`` is how many seconds the caller gives it, its
    wait included. ``leased`` is the id of the session that it belongs to (SPEC 7.4), empty without one.
    ``sender`` is the agent of this fleet that asks, empty for a caller from outside: only the fleet itself
    says it. ``depth`` is how many runs of the fleet are above this one, ``above`` whose those are as far as
    they wait for it, the outermost first; ``within`` is the id of the run that asks, empty from outside.
    """

    agent: str
    text: str
    images: tuple[Image, ...] = ()
    conversation: str | None = None
    session: str | None = None
    principal: Principal = ANONYMOUS
    history: tuple[Message, ...] = ()
    stream_text: bool = False
    new_conversation: bool = False
    caller: str = ""
    trace: TraceContext | None = None
    params: Params = NO_PARAMS
    surface: str = "mcp"
    run_id: str = ""
    defaults: Params = NO_PARAMS
    provider: str = ""
    timeout: float | None = None
    leased: str = ""
    sender: str = ""
    depth: int = 0
    above: tuple[str, ...] = ()
    within: str = ""
    bearer: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of it: ``texts`` are all assistant texts of the run in order, the last is the answer.

    ``thread`` is the durable thread that it was written to and ``turn_index`` the place of the answer in it;
    empty and None where nothing is kept. ``backend`` is the provider that answered, where the agent has a
    choice of them; ``routed`` is the agent that a router chose, ``rerouted`` says in a line each why another
    provider answered than the one that was asked for (DR-32). ``missing`` are the MCP servers whose
    tools it had to do without, by name, and why. ``notices`` are told beside the answer, in a line each.
    """

    run_id: str
    texts: tuple[str, ...]
    conversation: str | None
    seconds: float
    steps: int = 0
    tools: int = 0
    usage: Usage = Usage()
    stop_reason: str = "endTurn"
    thread: str = ""
    turn_index: int | None = None
    backend: str = ""
    routed: str = ""
    rerouted: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def who_answered(self) -> dict[str, Any]:
        """Provider, agent, why it was another one and what it lacked, as documents have them, where known."""
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
        """All assistant text of the run, in order (SPEC C4)."""
        return "\n\n".join(text for text in self.texts if text)
