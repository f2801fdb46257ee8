"""The records of the ledger: threads, their messages, runs and resources."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from .discovery import AgentKind
from .money import NO_COST, Cost
from .run_values import Image, Message, RunRequest, ToolCall, Usage
from .spend_limits import NOTHING, Amount
from .steps import Blob, StoredStep

MessageStatus = Literal["pending", "complete", "error"]
RunStatus = Literal["running", "ok", "error", "cancelled"]
RowRole = Literal["system", "user", "assistant", "tool"]
MAX_TITLE: Final = 200
"""Most characters of a thread's title."""
MADE_TITLE: Final = 80
"""Most characters of a title that is made from a message."""
MAX_SEARCH: Final = 200
"""Most characters of a search in threads."""


@dataclass(frozen=True, slots=True)
class Page[T]:
    """Part of a list."""

    items: tuple[T, ...]
    next: str = ""  # the cursor of the next page, empty at the end


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A durable conversation. Times are Unix seconds."""

    id: str  # also a handle: callers send it as ``conversation_id`` or ``threadId``
    agent: str
    owner: str  # the id of its principal
    title: str = ""
    origin: str = ""  # the surface that began it (``mcp``, ``rest``, ``chat`` ...)
    messages: int = 0  # the number of its rows
    created_at: float = 0.0
    updated_at: float = 0.0
    last_turn_at: float | None = None
    snippet: str = ""  # of a search: a part of the newest message that matches, empty if only the title does
    branched_from: str = ""  # the id of the thread from which it goes on, empty if it began by itself
    branched_at: int = 0  # how many messages of that it began with


class NewThread(NamedTuple):
    """A thread that is created with its first run: the caller's handle, if it has one, and the surface.

    ``branched_from`` is the id of the thread from which it goes on, if any.
    """

    handle: str | None
    origin: str
    branched_from: str = ""


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One row of a thread."""

    id: str
    thread: str
    turn_index: int  # unique and growing within the thread; gaps are possible
    role: RowRole
    content: str
    status: MessageStatus
    tool_calls: tuple[ToolCall, ...] = ()  # those of an assistant row
    tool_call_id: str = ""  # the call that a tool row answers
    tool_ok: bool = True  # whether that call succeeded
    images: tuple[Image, ...] = ()
    run: str = ""
    reason: str = ""  # why the row is in error
    summary: bool = False  # models see this row in place of all rows before it
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as the ledger knows it."""

    id: str
    agent: str
    owner: str
    thread: str = ""  # empty for a run that is not remembered
    surface: str = ""
    status: RunStatus = "running"
    started_at: float = 0.0
    finished_at: float | None = None
    seconds: float = 0.0
    steps: int = 0
    tools: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    # What its own steps cost, in nano-US-dollars; None if no price is known. Runs below it have their own
    cost: int | None = None
    unpriced: int = 0  # how many answers of models no price is known of
    turn_index: int | None = None  # the row of its answer, None without one
    fault: str = ""  # as its caller got it, like ``partial``
    partial: str = ""
    attempt: int = 1  # grows with each fleet that takes it over
    within: str = ""  # the id of the run that asked for it, empty from outside
    # The span that its caller sent; if it is that of a step, the run belongs to the step
    parent_span: str = ""
    forked_from: str = ""  # the id of the run from which it goes on, empty if it began by itself
    forked_at: int = 0  # the number of the step there that it does once more
    # The id of the run that it belongs to, for which it is paid: ``within``, or that whose call it is
    caused_by: str = ""
    version: str = ""  # of its agent: the beginning of the digest of its files, empty if it is not known
    # What a fleet made when it began the run or took it over: two may have the same attempt after a failover
    claim: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """What another fleet needs to continue a run: its request without question, history and bearer."""

    request: RunRequest
    had_bearer: bool = False
    until: float | None = None  # when its caller's timeout ends, Unix seconds


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session as all fleets of a ledger know it. Times are Unix seconds."""

    id: str
    agent: str
    kind: AgentKind
    owner: str  # the id of its principal
    handle: str  # that of its conversation
    metadata: str  # what its client gave it, as JSON
    created_at: float
    used_at: float
    begun: bool = False  # whether that conversation exists
    thread: str = ""  # its id
    failed: str = ""  # why it takes no more prompts
    had_prompt: bool = False  # since it was opened
    turns: int = 0
    run: str = ""  # the run of the prompt that is under way, in whatever fleet


class Said(NamedTuple):
    """What a run under way has said: its messages, the question first, as they are stored."""

    messages: tuple[Message, ...]
    question: int  # the ``turn_index`` of the question
    part: int  # that of the last message
    # The stored results of the calls of the last message, by call id, in the executor's own form as JSON
    results: Mapping[str, str]
    steps: int = 0  # how many steps it made
    used: Usage = Usage()  # the tokens of these steps
    cost: Cost = NO_COST  # what they cost
    spent: Amount = NOTHING  # what its questions to models used, with those of the runs below it
    nested: frozenset[str] = frozenset()  # the ids of its last calls that asked peers whose runs are stored
    unmade: frozenset[str] = frozenset()  # and of those that people were asked about, and that were not made


ReplicaState = Literal["starting", "serving", "draining", "dead"]


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """A fleet process that uses the ledger, as it reported itself last."""

    id: str
    host: str
    pid: int
    release: str  # of Pallas
    state: ReplicaState  # ``dead`` without heartbeats and lock: its runs go on elsewhere
    started_at: float  # Unix seconds
    beat_age: float | None = None  # seconds since its last heartbeat; None on SQLite, which has none
    runs: int = 0  # under way
    continued: int = 0  # those among them that it took over
    taken_over: int = 0  # runs that it took over since its start
    is_here: bool = False  # whether it is the one that was asked


@dataclass(frozen=True, slots=True)
class StoragePart:
    """What a ledger holds of one kind; None where it is not known, or does not apply."""

    what: str
    count: int | None = None
    stored: int | None = None  # bytes, as they are stored
    size: int | None = None  # characters, before they were compressed
    limit: int | None = None  # of the bytes as stored


@dataclass(frozen=True, slots=True)
class RunElsewhere:
    """A run of another replica, without its texts. ``run`` has only the beginning of its thread's id."""

    run: RunRecord
    replica: str  # the id of the one that has it, or had it last; empty while none has it
    principal: str = ""  # as of ``RunStarted``, like ``identity``
    identity: str = ""


@dataclass(frozen=True, slots=True)
class PastRun:
    """A run that is over, as the ledger has it."""

    about: RunElsewhere  # ``replica`` is empty if the fleet that had it is gone
    events: tuple[dict[str, Any], ...] = ()  # as ``codec.encode_event`` writes them, in order


class LifeReport(NamedTuple):
    """What a fleet says of itself in the list of replicas, or a program that is no fleet."""

    state: str = ""  # ``starting``, ``serving`` or ``draining``; empty for a program that is no fleet
    runs: int = 0
    taken_over: int = 0


ResourceKind = Literal["agent", "llm", "secret", "project"]


@dataclass(frozen=True, slots=True)
class Resource:
    """An agent, an LLM, a secret or a project that can be created, changed and deleted over the API."""

    kind: ResourceKind
    id: str
    name: str
    # the part that its author writes, complete, as plain JSON values; of a secret the names of its keys,
    # never a value
    spec: dict[str, Any]
    version: int = 1  # grows with each change
    owner: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    # the read-only part: for an agent ``source`` (``api``, or the ``file:line`` that declares it), ``state``,
    # ``health``, ``url``
    status: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunVersion:
    """Which version of its agent a run had. Digests are SHA-256 in hex; one is empty if it is not known.

    ``number`` counts from the start of the fleet. ``files`` is of the lines ``DIGEST  PATH`` of the files
    that it was made of, by path, as ``sha256sum`` prints them in the project's folder. ``code`` is the same
    with the syntax trees of Python files in the place of their bytes, ``settings`` of the configuration that
    its runs depend on; two versions with both in common behave alike.
    """

    number: int
    files: str = ""
    instruction: str = ""
    tools: str = ""  # of the tools that its servers had when it was started
    # Of the entry and the files of each of its servers, by name
    servers: Mapping[str, str] = field(default_factory=dict, hash=False)
    code: str = ""
    settings: str = ""

    def behaves_as(self, other: "RunVersion") -> bool:
        """Whether both are known to have the same code, settings and servers."""
        return (
            bool(self.code and self.settings)
            and (self.code, self.settings) == (other.code, other.settings)
            and self.servers == other.servers
        )


@dataclass(frozen=True, slots=True)
class RunTexts:
    """The question of a run and its answer. Secrets are masked, which they are not in rows of a thread.

    ``is_as_said`` says that both held no secret at its end: they are in the rows of its thread.
    """

    question: str
    images: tuple[Image, ...] = ()
    answer: str = ""
    pictures: tuple[Image, ...] = ()  # of the results of its calls that only their digest is recorded of
    params: Mapping[str, Any] = field(default_factory=dict, hash=False)  # its caller's and its session's
    provider: str = ""  # that was asked for
    is_as_said: bool = False
    images_lost: int = 0  # those of the question for which there was no room
    version: RunVersion | None = None  # that answered
    params_lost: bool = False  # they were too large to be stored
    # The digests of what its servers offered, by name, as in ``StoredOffer``
    offers: Mapping[str, str] = field(default_factory=dict, hash=False)


class EndedRun(NamedTuple):
    """A finished run as it is stored. Events are numbered; ``run`` is None for a run of a thread.

    ``uses`` are the digests of the shared blobs of its steps, and of all long texts of its blobs.
    """

    run_id: str
    run: RunRecord | None
    events: Sequence[tuple[int, dict[str, Any]]]
    steps: Sequence[StoredStep] = ()
    blobs: Sequence[Blob] = ()
    texts: RunTexts | None = None
    uses: Collection[str] = ()
