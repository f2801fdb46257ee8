"""Questions to people: may this call be made, or a form that someone wants filled; and the audit log."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Literal

from .canonical_json import canonical
from .ids import random_hex

QuestionKind = Literal["approval", "form"]
"""May a call be made; or a form of a server, a handler, a worker or ``pallas.asking``."""
QuestionState = Literal["open", "answered", "expired", "withdrawn"]
"""``withdrawn``: its run ended before there was an answer."""
QuestionAction = Literal["", "accept", "decline", "cancel"]

APPROVAL_SECONDS: Final = 3_600.0
"""How long a question is open where the project says nothing."""
BY_DEADLINE: Final = "deadline"
BY_END: Final = "run ended"
"""Who ended a question that no person answered, in ``answered_by``."""
AGAIN: Final = "#again"
"""At the end of the call id in a question whether what was lost is done again."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question that a run waits for. Its texts are sanitised, times are Unix seconds."""

    id: str  # ``q-`` and 24 hex digits, which nobody can guess
    kind: QuestionKind
    run_id: str  # the run that waits
    agent: str  # who calls: the agent of that run, or the handler that works in it
    root: str = ""  # the outermost run of its tree
    path: tuple[str, ...] = ()  # the agents of the runs above, outermost first
    thread: str = ""  # the durable thread of the root run, or empty
    owner: str = ""  # the principal of the root run, who is asked
    tool: str = ""  # ``server__tool`` or ``agent:NAME``; empty for a form of the agent itself
    server: str = ""  # the downstream that asks, or whose tool it is
    call_id: str = ""  # the model's id of the call
    part: int = 0  # the index of the message with the call in its thread; 0 in a run that is not durable
    digest: str = ""  # of tool and arguments (``call_digest``); empty for a form
    arguments: str = ""  # as JSON, secrets masked, for people
    message: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict, hash=False)  # of a form: JSON Schema as in MCP
    asked_at: float = 0.0
    expires_at: float = 0.0
    state: QuestionState = "open"
    action: QuestionAction = ""
    always: bool = False  # the tool is allowed in this thread from now on
    content: Mapping[str, Any] = field(default_factory=dict, hash=False)
    answered_by: str = ""  # the id of a principal, or why there is no answer
    answered_at: float | None = None
    used: bool = False  # an accepted approval holds for one call

    @property
    def is_open(self) -> bool:
        """Whether it can still be answered, as far as this value knows."""
        return self.state == "open"

    @property
    def is_accepted(self) -> bool:
        """Whether a person said yes."""
        return self.state == "answered" and self.action == "accept"

    @property
    def may_be_always(self) -> bool:
        """Whether ``always`` can be said. Whether what was lost is done again is asked each time."""
        return self.kind == "approval" and not self.call_id.endswith(AGAIN)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that wait for the answer, outermost first."""
        return (*self.path, self.agent)


@dataclass(frozen=True, slots=True)
class QuestionAnswer:
    """What a person says to a question. ``content`` is what a form asks for."""

    action: Literal["accept", "decline", "cancel"]
    content: Mapping[str, Any] = field(default_factory=dict, hash=False)
    always: bool = False


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One entry of the audit log. It has the digest of a call's arguments, never the arguments."""

    at: float  # Unix seconds
    who: str  # the id of a principal, ``deadline``, ``run ended``, or the agent that asked
    # ``asked``, ``accept``, ``always``, ``decline``, ``cancel``, ``expired``, ``withdrawn``; ``used``: the
    # call is made now; ``standing``: it is made because of an earlier ``always``; ``denied``
    what: str
    question: str = ""
    run: str = ""
    agent: str = ""
    tool: str = ""
    digest: str = ""
    detail: str = ""
    id: int = 0  # grows with each entry


def mint_question() -> str:
    """A new id of a question."""
    return f"q-{random_hex(12)}"


def call_digest(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """The SHA-256 of a call as RFC 8785 writes it. Raises ValueError for arguments that are no JSON."""
    whole = canonical({"tool": tool, "arguments": arguments or {}})
    return sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
