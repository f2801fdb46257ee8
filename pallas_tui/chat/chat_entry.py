"""The parts of a conversation: messages as they are shown, and the question in flight."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from itertools import count as counter
from typing import Final, Literal

from pallas.model import NO_COST, Cost, Image
from pallas.runs.retried_text import BEGINS_AGAIN
from pallas.safe_text import one_line

from ..pictures.images import ChatPicture
from .answer_parts import AnswerPart, CallPlace, add_place, parts_of
from .call_tree import Tree
from .run_progress import LoopStep, ProgressNote, TextPiece, ToolProgress, parse

STREAM_LIMIT: Final = 1_000_000
STATUS_LIMIT: Final = 300
REASONING_LIMIT: Final = 100_000

_keys: Final = counter(1)


@dataclass(frozen=True, slots=True)
class Trace:
    """``trace_id`` has 32 hex digits, ``span_id`` 16; both are generated unless given."""

    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def parent(self) -> str:
        """The ``traceparent`` to send with the call."""
        return f"00-{self.trace_id}-{self.span_id}-01"


def next_key() -> int:
    """Return a key that no other message has."""
    return next(_keys)


@dataclass(slots=True)
class ChatEntry:
    """One message on the screen; ``at`` in Unix seconds, ``seconds`` how long the answer took.

    ``role`` ``error`` is a run that failed, ``note`` a message of the workbench itself: the agent knows
    neither. ``cut`` says why an answer has no end: ``cancelled`` or ``broke off``; ``fault`` is the type of
    the fault. Tokens and ``cost`` are None where they are not known; ``fault``, ``run_id`` and ``trace_id``
    are empty then. ``places`` says where in the text the calls of the ``tree`` stand. ``reasoning`` is what
    the agent's model shows of it. ``lost`` is the idempotency key of a question whose run was not found
    again.
    """

    role: Literal["user", "assistant", "error", "note"]
    text: str
    at: float
    key: int = field(default_factory=next_key)
    attachments: tuple[ChatPicture, ...] = ()
    seconds: float | None = None
    steps: int = 0
    tools: int = 0
    cut: str = ""
    stopped: str = ""
    retryable: bool = False
    fault: str = ""
    tree: Tree | None = None
    places: tuple[CallPlace, ...] = ()
    reasoning: str = ""
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: Cost = NO_COST
    spent: Cost = NO_COST
    run_id: str = ""
    trace_id: str = ""
    lost: str = ""

    def place_calls(self, causes: Sequence[int]) -> None:
        """Place the calls of the agent itself again, each given by the number of the step that caused it.

        Those of one step are together, at the places that there are.
        """
        offsets, places = [place.offset for place in self.places], list[CallPlace]()
        groups = [len(list(group)) for _, group in groupby(causes)]
        for at, end in enumerate(accumulate(groups) if offsets else ()):
            add_place(places, offsets[min(at, len(offsets) - 1)], end)
        self.places = tuple(places)

    @property
    def parts(self) -> list[AnswerPart]:
        """The text and the calls of an answer, from top to bottom."""
        return parts_of(self.text, self.places or ((CallPlace(0, 0),) if self.tree else ()))


@dataclass(slots=True)
class ChatRun:
    """The question in flight. ``status`` is the line under the thinking indicator (PI-25).

    ``at`` in Unix seconds; ``started`` is the time on the stopwatch of the conversation, and ``heard`` that
    of the last progress. ``awaits_text``: its model writes, or is to write. ``idempotency`` is the key by
    which its server finds it again.
    """

    question: ChatEntry
    at: float
    started: float
    tree: Tree
    key: int = field(default_factory=next_key)
    trace: Trace = field(default_factory=Trace)
    idempotency: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    status: str = "sending"
    heard: float = 0.0
    awaits_text: bool = False
    text: str = ""
    reasoning: str = ""
    steps: int = 0
    tools: int = 0
    _speaker: str = ""
    _break: bool = False
    places: list[CallPlace] = field(default_factory=list)
    # Where the text of the current step begins.
    _begins: int = 0

    def hear(self, message: str, now: float) -> None:
        """Take in one progress message: it replaces the status line, or adds to the text."""
        progress = parse(message)
        self.tree.hear(progress, now)
        add_place(self.places, len(self.text), len(self.tree.root.children))
        self.heard = now
        self.awaits_text = isinstance(progress, TextPiece) or (
            isinstance(progress, LoopStep) and progress.kind == "llm"
        )
        match progress:
            case TextPiece(actor, text):
                self._write(actor, text)
            case LoopStep(actor, number, kind):
                self.steps += 1
                self._break = bool(self.text)
                self.status = f"{actor} step {number} ({kind})"
            case ToolProgress(label, phase):
                self.tools += phase == "started"
                self.status = f"{label}: {phase}"
            case ProgressNote(text):
                self.status = one_line(text, STATUS_LIMIT)
        self.status = one_line(self.status, STATUS_LIMIT)

    def _write(self, actor: str, text: str) -> None:
        self._speaker = self._speaker or actor
        if actor != self._speaker:  # another agent's text is not part of this answer
            return
        self.status = f"{actor} is writing"
        if self._break:  # the text of a later step is its own paragraph, as in the final text
            self.text = self.text.rstrip("\n") + "\n\n"
            self._begins = len(self.text)
            self._break = False
        again = text.rfind(f"\n\n{BEGINS_AGAIN}\n\n")
        if again >= 0:  # the text of an attempt that broke off does not count
            self.text, text = self.text[: self._begins], text[again + 2 :]
        self.text = (self.text + text)[:STREAM_LIMIT]


@dataclass(frozen=True, slots=True)
class TurnEntry:
    """One message as it is sent to the agent."""

    role: Literal["user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()


def turns_of(entries: Iterable[ChatEntry]) -> tuple[TurnEntry, ...]:
    """Return the history an agent has after these: the questions that were answered, and their answers."""
    turns: list[TurnEntry] = []
    question: ChatEntry | None = None
    for entry in entries:
        if entry.role == "user":
            question = entry
        elif entry.role == "assistant" and not entry.cut and question is not None:
            turns.append(
                TurnEntry("user", question.text, tuple(one.image for one in question.attachments if one.data))
            )
            turns.append(TurnEntry("assistant", entry.text))
            question = None
    return tuple(turns)


def last_answer(entries: list[ChatEntry]) -> ChatEntry | None:
    """Return the newest message of the agent, else the newest of all."""
    newest_first: Iterator[ChatEntry] = reversed(entries)
    answers = (entry for entry in newest_first if entry.role in ("assistant", "error"))
    return next(answers, entries[-1] if entries else None)


def last_question(entries: list[ChatEntry]) -> ChatEntry | None:
    """Return the newest message of the user."""
    return next((entry for entry in reversed(entries) if entry.role == "user"), None)
