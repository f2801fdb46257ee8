"""A conversation as values: its messages, and the run in flight. Nothing in here imports the screen."""

import asyncio
import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from time import monotonic
from typing import Final

from pallas.model import ANONYMOUS, NO_PARAMS, Cost, Fault, FaultType, Params, ThreadRecord
from pallas.model.ledger_records import MADE_TITLE, MAX_TITLE
from pallas.model.money import USD
from pallas.safe_text import one_line

from ..chat_client import LOOKED_FOR, AgentReply
from ..pictures.images import MAX_PICTURE_BYTES, ChatPicture, forgotten
from .answer_parts import moved
from .call_tree import State, Tree
from .chat_entry import (
    REASONING_LIMIT,
    STATUS_LIMIT,
    ChatEntry,
    ChatRun,
    TurnEntry,
    last_answer,
    last_question,
    next_key,
    turns_of,
)
from .message_queue import MessageQueue
from .stored_thread import ROWS, StoredThread, entries_of
from .token_prices import TokenPrice

__all__ = [
    "KEEP",
    "STATUS_LIMIT",
    "ChatConversation",
    "ChatEntry",
    "ChatRun",
    "TurnEntry",
    "last_answer",
    "last_question",
    "turns_of",
]

KEEP: Final = 200
"""Messages of one conversation that stay on the screen."""
REMEMBER: Final = 2_000
"""Messages beyond those that are kept for exports and branches."""
OLDER: Final = 30
"""Messages that return at once when the user scrolls up to them."""
_UNHEARD: Final = (FaultType.TRANSPORT, FaultType.TIMEOUT, FaultType.PROTOCOL)
"""Faults that say nothing of a run that may go on."""


class ChatConversation:
    """Messages to and from one agent under one handle, and at most one run in flight.

    ``changed`` is called after each change, on the caller's thread. ``stopwatch`` returns seconds. ``name``
    is the title of its thread, empty for the agent's name. ``unwritten_title`` is the title that its thread
    gets once it is written.

    The agent's server keeps the history under the handle. History that it does not have (the conversation was
    branched off, an earlier message was changed, another principal asks) is sent with the next question,
    under a new handle.

    ``params`` go along with each question. ``stored`` is the durable thread that this was opened from, as far
    as it is not read yet; ``thread`` is its id, empty while none is known. ``owner`` is its owner as long as
    it is not known whether the conversation may go on. ``branch_of`` is the id or the handle of the
    conversation whose history is sent with the next question.
    """

    def __init__(
        self,
        agent: str,
        changed: Callable[[], None] = lambda: None,
        stopwatch: Callable[[], float] = monotonic,
    ) -> None:
        self.agent = agent
        self.name = self.unwritten_title = ""
        self._stopwatch = stopwatch
        self.handle = _handle()
        self.entries: list[ChatEntry] = []
        self.pruned = 0
        self.run: ChatRun | None = None
        self.queue = MessageQueue()
        self.unread = 0
        self.changed = changed
        self.callers: Callable[[str], Collection[str]] = lambda server: ()
        """Returns the names of the agents that call a server; none where that is not known."""
        self.params: Params = NO_PARAMS
        self.stored: StoredThread | None = None
        self.thread = self.owner = self.branch_of = ""
        self._older: list[ChatEntry] = []
        self._untold = False

    def open(self, stored: StoredThread) -> None:
        """Go on in a durable thread, of which nothing is read yet."""
        self.stored = stored
        self._seat(stored.record)

    @property
    def first_title(self) -> str:
        """The title that a thread gets from its first message, as far as that is known."""
        return next((_title_of(entry) for entry in self.transcript if entry.role == "user"), "")

    def take_title(self, title: str) -> None:
        """Take the title of its thread as its name.

        A title that comes from a question is no name: the agent's is better, where several are asked the
        same. It stays if the conversation was opened by it.
        """
        title = one_line(title, MAX_TITLE)
        if title != self.name:
            asked = {_title_of(entry) for entry in self.transcript if entry.role == "user"}
            self.name = "" if title in asked else title
            self.changed()

    def _seat(self, record: ThreadRecord) -> None:
        self.handle = self.thread = record.id
        self.owner = record.owner if record.owner != ANONYMOUS.id else ""

    @property
    def more_above(self) -> bool:
        """Whether there are older messages that ``read_older`` returns."""
        unread = self.stored is not None and not self.stored.complete
        return bool(self._older) or (unread and len(self.entries) < REMEMBER)

    async def read_older(self, rows: int = ROWS) -> bool:
        """Put older messages before the others; return False when there are none. Raises Fault."""
        if self._older:
            self.entries[:0] = self._older[-OLDER:]
            self.pruned = max(0, self.pruned - len(self._older[-OLDER:]))
            del self._older[-OLDER:]
        elif (stored := self.stored) is not None and self.more_above:
            if (record := await stored.found()) is not None:
                self._seat(record)
            found = await asyncio.to_thread(entries_of, await stored.older(rows), self.agent)
            if stored is not self.stored:  # cleared during the read
                return False
            # New messages pushed older ones away during the read: these are older still.
            place = self._older or self.entries
            place[:0] = found
            self._shed()
        else:
            return False
        self.changed()
        return True

    @property
    def in_progress(self) -> str:
        """The id of the run that still answers the last question as it was read; empty if none does."""
        last = self.entries[-1] if self.entries and self.run is None else None
        return last.run_id if last is not None and last.role == "note" else ""

    async def read_answer_again(self) -> None:
        """Show what was added to an answer in progress. Raises Fault."""
        stored, run = self.stored, self.in_progress
        if stored is None or not run:
            return
        if (rows := await stored.changed_rows()) is None:
            return
        newest = await asyncio.to_thread(entries_of, rows, self.agent)
        if stored is self.stored and run == self.in_progress:  # else another question was asked meanwhile
            self.entries[_question_at(self.entries) + 1 :] = newest[_question_at(newest) + 1 :]
            self.changed()

    @property
    def untouched(self) -> bool:
        """Whether the conversation is still empty."""
        return not self.entries and self.run is None

    @property
    def hidden(self) -> Collection[int]:
        """The keys of older messages that are kept and not shown."""
        return {entry.key for entry in self._older}

    @property
    def transcript(self) -> list[ChatEntry]:
        """Return all messages that are kept, oldest first, including hidden ones."""
        return [*self._older, *self.entries]

    def elapsed(self, run: ChatRun) -> float:
        """Return the seconds since ``run`` began."""
        return self._stopwatch() - run.started

    def now(self) -> float:
        """Return the time on the stopwatch."""
        return self._stopwatch()

    def begin(self, text: str, attachments: tuple[ChatPicture, ...], at: float) -> ChatRun:
        """Begin a run with the user's question. There must be no run in flight."""
        question = ChatEntry("user", text, at, attachments=attachments)
        self.add(question)
        return self._start(question, at)

    def note(self, text: str, at: float) -> None:
        """Add a note of the workbench, which is not sent to the agent."""
        self.add(ChatEntry("note", text, at))
        self.changed()

    def retry(self, at: float) -> ChatRun | None:
        """Ask the last question again. Return None when there is none, or a run is in flight.

        After a failure the conversation is as it was before the question. An answer that is replaced must
        leave the server's history too, which takes a new handle.
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
        """Begin again under another handle; return False while a run is in flight."""
        if self.run is not None:
            return False
        self.handle = _handle()
        self.entries, self._older, self.pruned, self.unread, self._untold = [], [], 0, 0, False
        self.stored, self.thread, self.owner, self.branch_of = None, "", "", ""
        self.name = self.unwritten_title = ""
        self.queue.clear()
        self.changed()
        return True

    # The history of the agent's server

    def reseat(self) -> None:
        """Go on under a new handle; the next question carries the history."""
        self.branch_of = self._told_as
        self.handle = _handle()
        self._untold, self.thread, self.owner = True, "", ""
        self.unwritten_title = self.name

    @property
    def _told_as(self) -> str:
        """What its server knows it by, or knows that by of which it is a branch."""
        return self.branch_of if self._untold else self.thread or self.handle

    def untold(self, run: ChatRun) -> tuple[TurnEntry, ...]:
        """Return the history to send with the question of ``run``: empty when its server has it all."""
        return turns_of(self._before(run.question)) if self._untold else ()

    def rewind(self, entry: ChatEntry) -> bool:
        """Take back ``entry`` and all that follows it; return False when it is no longer here."""
        if self.run is not None or entry not in self.transcript:
            return False
        earlier = self._before(entry)
        self._older, self.entries = earlier[:-KEEP], earlier[-KEEP:]
        self.pruned = min(self.pruned, len(self._older))
        self.reseat()
        self.changed()
        return True

    def branch(self, entry: ChatEntry, changed: Callable[[], None] = lambda: None) -> "ChatConversation":
        """Return a new conversation with the same agent: all up to ``entry``, without an open question."""
        new = ChatConversation(self.agent, changed, self._stopwatch)
        earlier = self._before(entry) + ([] if entry.role == "user" else [entry])
        for each in earlier:
            new.add(replace(each, key=next_key()))
        new.reseat()
        new.branch_of = self._told_as
        new.params = self.params
        return new

    def _before(self, entry: ChatEntry) -> list[ChatEntry]:
        earlier: list[ChatEntry] = []
        for each in self.transcript:
            if each is entry:
                break
            earlier.append(each)
        return earlier

    # The results of a run

    def hear(self, run: ChatRun, message: str) -> None:
        """Take in progress of ``run``; ignored when it is no longer in flight."""
        if run is self.run:
            run.hear(message, self._stopwatch())
            self.changed()

    def reason(self, of: ChatRun | ChatEntry, text: str) -> None:
        """Add reasoning of the model to a run or its answer; an empty text begins another step."""
        if text or (of.reasoning and not of.reasoning.endswith("\n\n")):
            if isinstance(of, ChatRun):
                of.heard = self.now()
            of.reasoning = (of.reasoning + (text or "\n\n"))[:REASONING_LIMIT]
            self.changed()

    def answer(self, run: ChatRun, reply: AgentReply, at: float, price: TokenPrice | None = None) -> None:
        """Add the answer, or the error the agent answered with. It replaces the streamed text."""
        if run is not self.run:
            return
        run.question.lost = ""
        if reply.fault is not None:
            self.fail(run, reply.fault, at, reply.seconds)
            return
        self._untold, self.owner, self.branch_of = False, "", ""
        self.thread = reply.thread or self.thread
        cost = _priced(reply, price)
        self._finish(
            ChatEntry(
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
                places=moved(run.places, run.text, reply.text),
                reasoning=run.reasoning,
                tokens_in=reply.tokens_in,
                tokens_out=reply.tokens_out,
                cost=cost,
                spent=self.spent + cost,
                run_id=reply.run_id,
                trace_id=run.trace.trace_id,
            )
        )
        if reply.note:
            self.note(reply.note, at)

    @property
    def spent(self) -> Cost:
        """What its answers cost."""
        return Cost.sum(entry.cost for entry in self.transcript)

    def fail(self, run: ChatRun, fault: Fault, at: float, seconds: float | None = None) -> None:
        """Add an error: the agent could not be asked, or failed. Text that was streamed so far is kept."""
        if run is not self.run:
            return
        self.queue.hold()
        if fault.data.get(LOOKED_FOR):
            run.question.lost = run.idempotency
        elif fault.type not in _UNHEARD:
            run.question.lost = ""
        if run.text or run.tree or run.reasoning:
            self.add(self._partial(run, at, "broke off"))
        self._finish(
            ChatEntry(
                "error",
                fault.message,
                at,
                seconds=seconds,
                retryable=fault.retryable,
                fault=fault.type.value,
                trace_id=run.trace.trace_id,
            )
        )

    def cancel(self, run: ChatRun, at: float) -> None:
        """End the run because the user cancelled it; its text so far is kept, marked cancelled."""
        if run is self.run:
            run.question.lost = ""
            self.queue.hold()
            self._finish(self._partial(run, at, "cancelled"))

    def _partial(self, run: ChatRun, at: float, cut: str) -> ChatEntry:
        return ChatEntry(
            "assistant",
            run.text,
            at,
            key=run.key,
            seconds=self.elapsed(run),
            steps=run.steps,
            tools=run.tools,
            cut=cut,
            tree=_closed(run.tree, "cancelled" if cut == "cancelled" else "unknown"),
            places=tuple(run.places),
            reasoning=run.reasoning,
            trace_id=run.trace.trace_id,
        )

    def _start(self, question: ChatEntry, at: float) -> ChatRun:
        self.queue.held = False
        self.run = ChatRun(question, at, self._stopwatch(), Tree(self.agent, self.callers))
        if question.lost:  # its run may go on
            self.run.idempotency = question.lost
        self.changed()
        return self.run

    def _finish(self, entry: ChatEntry) -> None:
        self.run = None
        self.add(entry)
        self.unread += 1
        self.changed()

    def add(self, entry: ChatEntry) -> None:
        """Append an entry; the oldest go when there are too many."""
        self.entries.append(entry)
        if (extra := len(self.entries) - KEEP) > 0:
            self._older += self.entries[:extra]
            del self.entries[:extra]
            del self._older[: max(0, len(self._older) - REMEMBER)]
            self.pruned += extra
        if entry.attachments:
            self._shed()

    def _shed(self) -> None:
        """Drop the data of the oldest pictures beyond the limit; their names stay."""
        room = MAX_PICTURE_BYTES
        for entry in reversed(self.transcript):
            room -= sum(len(one.data) for one in entry.attachments)
            if room < 0 and entry.attachments:
                entry.attachments = forgotten(entry.attachments)


def _title_of(question: ChatEntry) -> str:
    """The title that the ledger makes of a question."""
    return one_line(question.text, MADE_TITLE)


def _question_at(entries: Sequence[ChatEntry]) -> int:
    """The index of the last question; -1 if there is none."""
    return max((at for at, entry in enumerate(entries) if entry.role == "user"), default=-1)


def _handle() -> str:
    # It cannot be guessed: the agent's server knows the conversation by nothing else.
    return f"chat-{secrets.token_urlsafe(24)}"


def _closed(tree: Tree, state: State = "unknown") -> Tree | None:
    tree.close(state)
    return tree or None


def _priced(reply: AgentReply, price: TokenPrice | None) -> Cost:
    """What an answer cost: as its fleet says, else by the price of the user's settings."""
    if reply.cost.cost is not None or price is None:
        return reply.cost
    if reply.tokens_in is None or reply.tokens_out is None:
        return reply.cost
    return Cost(round(price.cost(reply.tokens_in, reply.tokens_out) * USD))
