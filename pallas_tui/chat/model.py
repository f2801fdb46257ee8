"""A conversation as values: what was said, the run in flight, what was sent before. No screen in here."""

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count as counter
from time import monotonic
from typing import Final, Literal

from pallas.model import Fault
from pallas.text import one_line

from ..client import Reply
from ..images import Attachment
from .progress import Piece, Remark, Step, ToolCall, parse

KEEP: Final = 200
"""Messages of one conversation that stay on the screen."""
STREAM_LIMIT: Final = 1_000_000
STATUS_LIMIT: Final = 300

_keys: Final = counter(1)


@dataclass(slots=True)
class Entry:
    """One message on the screen; ``at`` in Unix seconds, ``seconds`` how long the answer took.

    ``role`` ``error`` is a run that failed. ``cut`` says why an answer has no end: ``cancelled`` or
    ``broke off``.
    """

    role: Literal["user", "assistant", "error"]
    text: str
    at: float
    key: int = field(default_factory=lambda: next(_keys))
    attachments: tuple[Attachment, ...] = ()
    seconds: float | None = None
    steps: int = 0
    tools: int = 0
    cut: str = ""
    stopped: str = ""
    retryable: bool = False


@dataclass(slots=True)
class Run:
    """The question in flight. ``status`` is the line under the thinking indicator (PI-25).

    ``at`` in Unix seconds; ``started`` as the stopwatch of the conversation showed then.
    """

    question: Entry
    at: float
    started: float
    key: int = field(default_factory=lambda: next(_keys))
    status: str = "sending"
    text: str = ""
    steps: int = 0
    tools: int = 0
    _speaker: str = ""
    _break: bool = False

    def hear(self, message: str) -> None:
        """Take in one progress message: it replaces the status line, or adds to the text."""
        match parse(message):
            case Piece(actor, text):
                self._write(actor, text)
            case Step(actor, number, kind):
                self.steps += 1
                self._break = bool(self.text)
                self.status = f"{actor} step {number} ({kind})"
            case ToolCall(label, phase):
                self.tools += phase == "started"
                self.status = f"{label}: {phase}"
            case Remark(text):
                self.status = one_line(text, STATUS_LIMIT)
        self.status = one_line(self.status, STATUS_LIMIT)

    def _write(self, actor: str, text: str) -> None:
        self._speaker = self._speaker or actor
        if actor != self._speaker:  # another agent's words are no part of this one's answer
            return
        self.status = f"{actor} is writing"
        if self._break:  # what a later step says is a paragraph of its own, as in the final text
            self.text = self.text.rstrip("\n") + "\n\n"
            self._break = False
        self.text = (self.text + text)[:STREAM_LIMIT]


class Conversation:
    """Messages to and from one agent under one handle, and at most one run in flight.

    ``changed`` is called after each change, on the caller's thread. ``stopwatch`` gives seconds.
    """

    def __init__(
        self,
        agent: str,
        changed: Callable[[], None] = lambda: None,
        stopwatch: Callable[[], float] = monotonic,
    ) -> None:
        self.agent = agent
        self._stopwatch = stopwatch
        # Nobody can guess it: the agent's server knows the conversation by nothing else (SPEC C12).
        self.handle = f"chat-{secrets.token_urlsafe(24)}"
        self.entries: list[Entry] = []
        self.pruned = 0
        self.run: Run | None = None
        self.unread = 0
        self.changed = changed

    @property
    def untouched(self) -> bool:
        """Whether nothing was said yet."""
        return not self.entries and self.run is None

    def elapsed(self, run: Run) -> float:
        """Seconds since ``run`` began."""
        return self._stopwatch() - run.started

    def begin(self, text: str, attachments: tuple[Attachment, ...], at: float) -> Run:
        """The person asks something. There must be no run in flight."""
        question = Entry("user", text, at, attachments=attachments)
        self._add(question)
        return self._start(question, at)

    def retry(self, at: float) -> Run | None:
        """Ask the last question again after it failed or was cancelled; None when it did not."""
        if self.run is not None or not self.can_retry:
            return None
        question = next(entry for entry in reversed(self.entries) if entry.role == "user")
        while self.entries[-1] is not question:
            self.entries.pop()
        return self._start(question, at)

    @property
    def can_retry(self) -> bool:
        """Whether the last message is a failure or a cancelled answer with its question still here."""
        if not self.entries or not any(entry.role == "user" for entry in self.entries):
            return False
        last = self.entries[-1]
        return last.role == "error" or last.cut == "cancelled"

    def hear(self, run: Run, message: str) -> None:
        """Progress of ``run``; ignored when it is not in flight any more."""
        if run is self.run:
            run.hear(message)
            self.changed()

    def answer(self, run: Run, reply: Reply, at: float) -> None:
        """The answer, or the error the agent answered with. What was streamed gives way to it."""
        if run is not self.run:
            return
        if reply.fault is not None:
            self.fail(run, reply.fault, at, reply.seconds)
            return
        self._finish(
            Entry(
                "assistant",
                reply.text,
                at,
                key=run.key,
                seconds=reply.seconds,
                steps=run.steps if reply.steps is None else reply.steps,
                tools=run.tools if reply.tools is None else reply.tools,
                stopped="" if reply.stop_reason in ("endTurn", "end_turn") else reply.stop_reason,
            )
        )

    def fail(self, run: Run, fault: Fault, at: float, seconds: float | None = None) -> None:
        """The agent could not be asked, or answered with an error; what it said so far is kept."""
        if run is not self.run:
            return
        if run.text:
            self._add(self._partial(run, at, "broke off"))
        self._finish(Entry("error", fault.message, at, seconds=seconds, retryable=fault.retryable))

    def cancel(self, run: Run, at: float) -> None:
        """The person gave up waiting; what was received is kept, marked cancelled."""
        if run is self.run:
            self._finish(self._partial(run, at, "cancelled"))

    def _partial(self, run: Run, at: float, cut: str) -> Entry:
        return Entry(
            "assistant",
            run.text,
            at,
            key=run.key,
            seconds=self.elapsed(run),
            steps=run.steps,
            tools=run.tools,
            cut=cut,
        )

    def _start(self, question: Entry, at: float) -> Run:
        self.run = Run(question, at, self._stopwatch())
        self.changed()
        return self.run

    def _finish(self, entry: Entry) -> None:
        self.run = None
        self._add(entry)
        self.unread += 1
        self.changed()

    def _add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if (extra := len(self.entries) - KEEP) > 0:
            del self.entries[:extra]
            self.pruned += extra


def last_answer(entries: list[Entry]) -> Entry | None:
    """The newest message of the agent, else the newest of all."""
    newest_first: Iterator[Entry] = reversed(entries)
    return next((entry for entry in newest_first if entry.role != "user"), entries[-1] if entries else None)
