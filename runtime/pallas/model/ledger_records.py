"""The records of the ledger: threads, their messages, runs and resources (SPEC 6.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from .run_values import Image, ToolCall
from .steps import Blob, StoredStep

MessageStatus = Literal["pending", "complete", "error"]
RunStatus = Literal["running", "ok", "error", "cancelled"]
RowRole = Literal["system", "user", "assistant", "tool"]


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
    turn_index: int | None = None  # the row of its answer, None without one
    fault: str = ""  # as its caller got it, like ``partial``
    partial: str = ""


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


class EndedRun(NamedTuple):
    """A finished run as it is stored. ``run`` is None for a run of a thread; events are numbered."""

    run_id: str
    run: RunRecord | None
    events: Sequence[tuple[int, dict[str, Any]]]
    steps: Sequence[StoredStep] = ()
    blobs: Sequence[Blob] = ()
