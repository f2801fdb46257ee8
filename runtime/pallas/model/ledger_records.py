"""What the ledger holds, as values: threads, their messages, runs (SPEC 6.1)."""

from dataclasses import dataclass, field
from typing import Any, Literal

from .run_values import Image, ToolCall

MessageStatus = Literal["pending", "complete", "error"]
RunStatus = Literal["running", "ok", "error", "cancelled"]
RowRole = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Page[T]:
    """Some of a list, and what to ask for the rest with; ``next`` is empty at its end."""

    items: tuple[T, ...]
    next: str = ""


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """A durable conversation. Times are Unix seconds.

    ``id`` is a handle as well: whoever may use the thread says it as ``conversation_id`` or ``threadId``.
    ``owner`` is the id of the principal it belongs to, ``origin`` the surface that began it (``mcp``,
    ``rest``, ``chat`` ...), ``messages`` how many rows it has.
    """

    id: str
    agent: str
    owner: str
    title: str = ""
    origin: str = ""
    messages: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    last_turn_at: float | None = None


@dataclass(frozen=True, slots=True)
class MessageRecord:
    """One row of a thread. ``turn_index`` is unique and grows within it; gaps are possible.

    ``tool_calls`` are those of an assistant row, ``tool_call_id`` what a tool row answers, ``tool_ok``
    whether that call worked. ``reason`` says why a row is in error; ``summary`` that it stands for what was
    said before it when a model is asked.
    """

    id: str
    thread: str
    turn_index: int
    role: RowRole
    content: str
    status: MessageStatus
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    tool_ok: bool = True
    images: tuple[Image, ...] = ()
    run: str = ""
    reason: str = ""
    summary: bool = False
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as the ledger knows it; ``thread`` is empty for one of which nothing is remembered.

    ``turn_index`` is that of its answer's row, None while there is none. ``fault`` and ``partial`` are what
    its caller was told.
    """

    id: str
    agent: str
    owner: str
    thread: str = ""
    surface: str = ""
    status: RunStatus = "running"
    started_at: float = 0.0
    finished_at: float | None = None
    seconds: float = 0.0
    steps: int = 0
    tools: int = 0
    tokens_in: int | None = None
    tokens_out: int | None = None
    turn_index: int | None = None
    fault: str = ""
    partial: str = ""


ResourceKind = Literal["agent", "llm", "secret", "project"]


@dataclass(frozen=True, slots=True)
class Resource:
    """An agent, an LLM, a secret or a project as a thing that can be made, changed and deleted.

    ``spec`` is what its author may write, as plain JSON values, complete; a secret's has the names of its
    keys and never a value. ``status`` is what is so and cannot be written: for an agent ``source`` (``api``,
    or the ``file:line`` that declares it), ``state``, ``health``, ``url``. ``version`` grows with changes.
    """

    kind: ResourceKind
    id: str
    name: str
    spec: dict[str, Any]
    version: int = 1
    owner: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    status: dict[str, Any] = field(default_factory=dict)
