"""The steps of a run: its questions to models, its calls of tools and agents, its summaries."""

from dataclasses import dataclass, field
from typing import Final, Literal

from .long_strings import LongText

StepKind = Literal["model", "tool", "agent", "question", "compaction"]
"""What a run asks: a model, a tool, another agent, a person; or the summary of its older messages."""
AT_ONCE: Final = 0.1
"""Seconds in which an answer came at once: its tokens have no speed."""
OWN_CODE: Final = "local"
"""What stands for a server in the name of a call of a function in an agent's own code."""
StepState = Literal["begun", "done", "failed", "cancelled", "unknown", "parked"]
"""``cancelled``: its run was, before it ended. ``unknown``: its process died between begin and end."""


@dataclass(frozen=True, slots=True)
class StepAttempt:
    """One HTTP request of a model step. Times are in seconds."""

    at: float  # Unix time
    status: int | None = None  # HTTP status, None without a response
    seconds: float | None = None  # None while it is under way
    reason: str = ""  # why it failed
    wait: float = 0.0  # until the next attempt


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens of one model step, as the provider counted them; None where it did not say."""

    input: int | None = None  # with the cached ones
    output: int | None = None  # with those of reasoning
    cached: int | None = None
    cache_writes: int | None = None
    reasoning: int | None = None
    cache_writes_1h: int | None = None  # those of them that are kept for an hour, which cost more
    # Those of the input and output that are of sound and pictures
    input_audio: int | None = None
    output_audio: int | None = None
    input_image: int | None = None
    output_image: int | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run, without the texts that it sent and got. Text is sanitised and masked."""

    run_id: str
    number: int  # from 1 on, in the order in which they began
    kind: StepKind
    name: str  # the model, ``{server}__{tool}``, or the agent
    started_at: float  # Unix time
    state: StepState = "begun"
    provider: str = ""  # as fast-agent names it
    url: str = ""
    seconds: float | None = None  # None while it is under way
    first_token: float | None = None  # seconds until the first piece of the answer
    attempts: tuple[StepAttempt, ...] = ()
    usage: StepUsage = field(default_factory=StepUsage)
    messages: int = 0  # how many were sent
    # SHA-256 of the canonical form of the request in hexadecimal digits, after the number of the form and
    # ``:``. One without a number is of an older form, which did not see all changes.
    digest: str = ""
    fault: str = ""  # why it failed
    parent: int = 0  # the number of the step that caused it; 0 for the run's own
    call_id: str = ""  # of a call, as in its ToolEvent
    span_id: str = ""  # of a call; another run with this ``parent_span`` belongs to it
    tool_use_id: str = ""  # of a call that a model wanted: the id that the model gave it
    # What its answers cost, in nano-US-dollars; None if no price is known, or if there was no answer
    cost: int | None = None
    unpriced: int = 0  # how many of its answers no price is known of

    @property
    def words(self) -> str:
        """What was asked, in a line: its kind with the name."""
        if self.kind == "compaction":
            return "summary of older messages"
        return f"{self.kind} {self.name}".strip()

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens of the answer for each second after its first piece.

        None if one of them is unknown, or if all of it came at once.
        """
        if self.seconds is None or self.usage.output is None:
            return None
        took = self.seconds - (self.first_token or 0.0)
        return self.usage.output / took if took > AT_ONCE else None


@dataclass(frozen=True, slots=True)
class StepDetail:
    """A step with what was sent and what came back, as JSON texts with secrets masked.

    A model's request and response are the provider's documents, a streamed response is one document; those of
    a call are its name and arguments, and its content. Pictures in requests, and texts that are not kept, are
    replaced by their length and digest; ``lacks`` says of these texts why, one line each.
    """

    step: Step
    request: str = ""
    response: str = ""
    headers: tuple[tuple[str, str], ...] = ()  # of the request; a credential is a fingerprint
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredField:
    """A field of a request as it is stored. A small value is its JSON ``text``.

    A larger one is in ``shared``, the digest of a blob. A conversation has ``scope``: it is the blobs in
    ``shared``, then the chain of messages in that scope up to ``last``.
    """

    name: str
    text: str = ""
    shared: tuple[str, ...] = ()
    scope: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step with what is stored of its texts."""

    step: Step
    fields: tuple[StoredField, ...] = ()
    response: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Blob:
    """A piece of a request, JSON text, stored once. ``parent`` is the digest of the message before it.

    A blob without ``scope`` is shared by all conversations. ``body`` has the digests of its ``texts``, which
    are stored once for all.
    """

    scope: str
    digest: str
    parent: str
    body: str
    texts: tuple[LongText, ...] = ()
