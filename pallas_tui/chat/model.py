"""A conversation as values: what was said, and the run in flight. No screen in here."""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count as counter
from time import monotonic
from typing import Final, Literal

from pallas.model import Fault, Image
from pallas.text import one_line

from ..client import Reply
from ..pictures.images import MAX_KEPT, Attachment, forgotten
from .pricing import Price
from .progress import Piece, Remark, Step, ToolCall, parse
from .trace import Trace
from .tree import Tree

KEEP: Final = 200
"""Messages of one conversation that stay on the screen."""
REMEMBER: Final = 2_000
"""Messages beyond those that are kept for exports and branches."""
STREAM_LIMIT: Final = 1_000_000
STATUS_LIMIT: Final = 300

_keys: Final = counter(1)


@dataclass(slots=True)
class Entry:
    """One message on the screen; ``at`` in Unix seconds, ``seconds`` how long the answer took.

    ``role`` ``error`` is a run that failed, ``note`` what the workbench itself had to say: neither is part of
    what the agent knows. ``cut`` says why an answer has no end: ``cancelled`` or ``broke off``. Tokens and
    ``cost`` are None where they are not known; ``run_id`` and ``trace_id`` empty then.
    """

    role: Literal["user", "assistant", "error", "note"]
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
    tree: Tree | None = None
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost: float | None = None
    run_id: str = ""
    trace_id: str = ""


@dataclass(slots=True)
class Run:
    """The question in flight. ``status`` is the line under the thinking indicator (PI-25).

    ``at`` in Unix seconds; ``started`` as the stopwatch of the conversation showed then.
    """

    question: Entry
    at: float
    started: float
    tree: Tree
    key: int = field(default_factory=lambda: next(_keys))
    trace: Trace = field(default_factory=Trace)
    status: str = "sending"
    text: str = ""
    steps: int = 0
    tools: int = 0
    _speaker: str = ""
    _break: bool = False

    def hear(self, message: str, now: float) -> None:
        """Take in one progress message: it replaces the status line, or adds to the text."""
        progress = parse(message)
        self.tree.hear(progress, now)
        match progress:
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


@dataclass(frozen=True, slots=True)
class Turn:
    """One message as the agent is told of it."""

    role: Literal["user", "assistant"]
    text: str
    images: tuple[Image, ...] = ()


class Conversation:
    """Messages to and from one agent under one handle, and at most one run in flight.

    ``changed`` is called after each change, on the caller's thread. ``stopwatch`` gives seconds. ``name`` is
    what a person calls it, empty for the agent's name.

    The agent's server keeps the history under the handle. What it does not know (this was branched off, an
    earlier message was changed, somebody else asks) is told with the next question, under a new handle.
    """

    def __init__(
        self,
        agent: str,
        changed: Callable[[], None] = lambda: None,
        stopwatch: Callable[[], float] = monotonic,
    ) -> None:
        self.agent = agent
        self.name = ""
        self._stopwatch = stopwatch
        self.handle = _handle()
        self.entries: list[Entry] = []
        self.pruned = 0
        self.run: Run | None = None
        self.unread = 0
        self.changed = changed
        self.callers: Callable[[str], Collection[str]] = lambda server: ()
        """Names of the agents that call a server, none where that is not known."""
        self._older: list[Entry] = []
        self._untold = False

    @property
    def untouched(self) -> bool:
        """Whether nothing was said yet."""
        return not self.entries and self.run is None

    @property
    def transcript(self) -> list[Entry]:
        """Everything that is kept, oldest first, also what is not shown any more."""
        return [*self._older, *self.entries]

    def elapsed(self, run: Run) -> float:
        """Seconds since ``run`` began."""
        return self._stopwatch() - run.started

    def now(self) -> float:
        """What the stopwatch shows."""
        return self._stopwatch()

    def begin(self, text: str, attachments: tuple[Attachment, ...], at: float) -> Run:
        """The person asks something. There must be no run in flight."""
        question = Entry("user", text, at, attachments=attachments)
        self._add(question)
        return self._start(question, at)

    def note(self, text: str, at: float) -> None:
        """The workbench says something, which no agent hears of."""
        self._add(Entry("note", text, at))
        self.changed()

    def retry(self, at: float) -> Run | None:
        """Ask the last question again; None when there is none, or a run is in flight.

        After a failure the conversation stands as before the question. An answer that is to be replaced is
        something its server must forget.
        """
        if self.run is not None or not self.can_retry:
            return None
        question = next(entry for entry in reversed(self.entries) if entry.role == "user")
        while self.entries[-1] is not question:
            if self.entries[-1].role == "assistant" and not self.entries[-1].cut:
                self.reseat()
            self.entries.pop()
        return self._start(question, at)

    @property
    def can_retry(self) -> bool:
        """Whether there is a question that was answered, failed or was cancelled."""
        return self.run is None and any(entry.role == "user" for entry in self.entries)

    def clear(self) -> bool:
        """Begin anew under another handle; False while a run is in flight."""
        if self.run is not None:
            return False
        self.handle = _handle()
        self.entries, self._older, self.pruned, self.unread, self._untold = [], [], 0, 0, False
        self.changed()
        return True

    # What the agent's server knows

    def reseat(self) -> None:
        """Go on under a new handle; the agent is told what was said with the next question."""
        self.handle = _handle()
        self._untold = True

    def untold(self, run: Run) -> tuple[Turn, ...]:
        """What must be told with the question of ``run``: nothing when its server knows everything."""
        return turns_of(self._before(run.question)) if self._untold else ()

    def rewind(self, entry: Entry) -> bool:
        """Take back ``entry`` and all that follows it; False when it is not here (any more)."""
        if self.run is not None or entry not in self.transcript:
            return False
        kept = self._before(entry)
        self._older, self.entries = kept[:-KEEP], kept[-KEEP:]
        self.pruned = min(self.pruned, len(self._older))
        self.reseat()
        self.changed()
        return True

    def branch(self, entry: Entry, changed: Callable[[], None] = lambda: None) -> "Conversation":
        """Another conversation with the same agent that has all up to ``entry``, a question left out."""
        new = Conversation(self.agent, changed, self._stopwatch)
        kept = self._before(entry) + ([] if entry.role == "user" else [entry])
        for each in kept:
            new._add(replace(each, key=next(_keys)))
        new.reseat()
        return new

    def _before(self, entry: Entry) -> list[Entry]:
        kept: list[Entry] = []
        for each in self.transcript:
            if each is entry:
                break
            kept.append(each)
        return kept

    # What comes of a run

    def hear(self, run: Run, message: str) -> None:
        """Progress of ``run``; ignored when it is not in flight any more."""
        if run is self.run:
            run.hear(message, self._stopwatch())
            self.changed()

    def answer(self, run: Run, reply: Reply, at: float, price: Price | None = None) -> None:
        """The answer, or the error the agent answered with. What was streamed gives way to it."""
        if run is not self.run:
            return
        if reply.fault is not None:
            self.fail(run, reply.fault, at, reply.seconds)
            return
        self._untold = False
        known = reply.tokens_in is not None and reply.tokens_out is not None
        cost = price.cost(reply.tokens_in or 0, reply.tokens_out or 0) if price and known else None
        self._finish(
            Entry(
                "assistant",
                reply.text,
                at,
                key=run.key,
                attachments=reply.images,
                seconds=reply.seconds,
                steps=run.steps if reply.steps is None else reply.steps,
                tools=run.tools if reply.tools is None else reply.tools,
                stopped="" if reply.stop_reason in ("endTurn", "end_turn") else reply.stop_reason,
                tree=_closed(run.tree),
                tokens_in=reply.tokens_in,
                tokens_out=reply.tokens_out,
                cost=cost,
                run_id=reply.run_id,
                trace_id=run.trace.trace_id,
            )
        )
        if reply.note:
            self.note(reply.note, at)

    def fail(self, run: Run, fault: Fault, at: float, seconds: float | None = None) -> None:
        """The agent could not be asked, or answered with an error; what it said so far is kept."""
        if run is not self.run:
            return
        if run.text or run.tree:
            self._add(self._partial(run, at, "broke off"))
        self._finish(
            Entry(
                "error",
                fault.message,
                at,
                seconds=seconds,
                retryable=fault.retryable,
                trace_id=run.trace.trace_id,
            )
        )

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
            tree=_closed(run.tree),
            trace_id=run.trace.trace_id,
        )

    def _start(self, question: Entry, at: float) -> Run:
        self.run = Run(question, at, self._stopwatch(), Tree(self.agent, self.callers))
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
            self._older += self.entries[:extra]
            del self.entries[:extra]
            del self._older[: max(0, len(self._older) - REMEMBER)]
            self.pruned += extra
        if entry.attachments:
            self._shed()

    def _shed(self) -> None:
        """Forget the data of the oldest pictures beyond what is kept; their names stay."""
        room = MAX_KEPT
        for entry in reversed(self.transcript):
            room -= sum(len(one.data) for one in entry.attachments)
            if room < 0 and entry.attachments:
                entry.attachments = forgotten(entry.attachments)


def turns_of(entries: Iterable[Entry]) -> tuple[Turn, ...]:
    """What an agent knows after these: questions that were answered, and the answers."""
    turns: list[Turn] = []
    question: Entry | None = None
    for entry in entries:
        if entry.role == "user":
            question = entry
        elif entry.role == "assistant" and not entry.cut and question is not None:
            turns.append(
                Turn("user", question.text, tuple(one.image for one in question.attachments if one.data))
            )
            turns.append(Turn("assistant", entry.text))
            question = None
    return tuple(turns)


def last_answer(entries: list[Entry]) -> Entry | None:
    """The newest message of the agent, else the newest of all."""
    newest_first: Iterator[Entry] = reversed(entries)
    answers = (entry for entry in newest_first if entry.role in ("assistant", "error"))
    return next(answers, entries[-1] if entries else None)


def last_question(entries: list[Entry]) -> Entry | None:
    """The newest message of the person."""
    return next((entry for entry in reversed(entries) if entry.role == "user"), None)


def _handle() -> str:
    # Nobody can guess it: the agent's server knows the conversation by nothing else (SPEC C12).
    return f"chat-{secrets.token_urlsafe(24)}"


def _closed(tree: Tree) -> Tree | None:
    tree.close()
    return tree or None
