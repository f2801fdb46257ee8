"""Questions of a run to a person: shown where its answer is awaited, and answered there on a terminal."""

import asyncio
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pallas.client import RestClient
from pallas.client.rest_client import part
from pallas.deadlines import cancel_and_wait
from pallas.model import Fault
from pallas.safe_text import one_line, sanitize

from .chat_terminal import BOLD, DIM, RED, ChatTerminal
from .question_form import read_form
from .terminal_lines import TerminalLines

_ARGUMENTS: Final = 4_000
"""Characters of a call's arguments that are shown."""
_LINES: Final = 40
_MOST: Final = 200
"""Questions that wait to be asked here."""
_YES: Final = frozenset({"y", "yes"})
_NO: Final = frozenset({"n", "no"})
_ALWAYS: Final = frozenset({"a", "always"})


class ChatQuestions:
    """Asks the person at the terminal one question after the other, while the run goes on.

    Without ``lines``, on which a person answers, it only says where to answer. Owned by one turn: ``close``
    ends what is asked.
    """

    def __init__(self, api: RestClient, terminal: ChatTerminal, lines: TerminalLines | None) -> None:
        self._api, self._terminal, self._lines = api, terminal, lines
        self._open: dict[str, asyncio.Event] = {}
        self._known: set[str] = set()
        self._waiting: asyncio.Queue[str] = asyncio.Queue(_MOST)
        self._asking: asyncio.Task[None] | None = None
        self.is_asking = False
        """Whether the person is typing an answer: no status line is drawn then."""

    def asked(self, id: str) -> None:  # noqa: A002 - the word of the record
        """Take in a question; one that is known already, as after a lost connection, is not asked again."""
        if not id or id in self._known:
            return
        self._known.add(id)
        if self._waiting.full():
            self._tell_where(id)
            return
        self._open[id] = asyncio.Event()
        self._waiting.put_nowait(id)
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_all(), name="questions")

    def answered(self, id: str, chunk: Mapping[str, Any]) -> None:  # noqa: A002 - as above
        """Take in that a question is over, and say how, unless it was answered here."""
        over = self._open.pop(id, None)
        if over is None:
            return
        over.set()
        self._terminal.note(f"({_outcome(chunk)})", DIM)

    @property
    def waits(self) -> bool:
        """Whether a question is open."""
        return bool(self._open)

    async def close(self) -> None:
        """End what is asked now."""
        if self._asking is not None:
            await cancel_and_wait(self._asking, seconds=1.0)

    async def _ask_all(self) -> None:
        while True:
            id = await self._waiting.get()  # noqa: A001 - as above
            if id in self._open:
                try:
                    await self._ask(id)
                except Fault as fault:
                    self._terminal.note(f"error: {fault.message}", RED)
                    self._tell_where(id)

    async def _ask(self, id: str) -> None:  # noqa: A002 - as above
        question = await self._api.get(f"/questions/{part(id)}")
        if not isinstance(question, dict) or question.get("state") != "open":
            return
        self._terminal.settle()
        for line, style in _shown(question):
            self._terminal.note(line, style)
        if self._lines is None:
            self._tell_where(id)
            return
        over = self._open[id]
        answering = asyncio.create_task(self._answer(question), name="answer a question")
        ended = asyncio.create_task(over.wait(), name="end of a question")
        self.is_asking = True
        try:
            await asyncio.wait({answering, ended}, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                answering.result()
        finally:
            self.is_asking = False
            for task in (answering, ended):
                task.cancel()
            await asyncio.wait({answering, ended})

    async def _answer(self, question: Mapping[str, Any]) -> None:
        """Read an answer until the fleet takes it. Raises Fault."""
        assert self._lines is not None
        if self._lines.discard():
            self._terminal.note("(what you typed before the question is discarded)", DIM)
        id = str(question.get("id"))  # noqa: A001 - as above
        while True:
            try:
                body = await self._body(question, self._lines)
            except EOFError:
                self._terminal.settle()
                self._tell_where(id)
                return
            if body is None:
                continue
            try:
                ended = await self._api.post(f"/questions/{part(id)}/answer", body)
            except Fault as fault:
                if fault.data.get("key") != "content":
                    raise
                self._terminal.note(fault.message, RED)
                continue
            self._open.pop(id, None)
            self._terminal.note(f"({_said(ended if isinstance(ended, dict) else body)})", DIM)
            return

    async def _body(self, question: Mapping[str, Any], lines: TerminalLines) -> dict[str, Any] | None:
        """The body of the answer; None for a line that is no answer. Raises EOFError."""
        if question.get("kind") == "form":
            word = (await lines.read("fill it in? [y]es [n]o: ")).strip().lower()
            if word in _NO:
                return {"action": "decline"}
            if word not in _YES:
                return None
            return {"action": "accept", "content": await read_form(question.get("form") or {}, lines)}
        word = (await lines.read("allow it? [y]es [n]o [a]lways in this thread: ")).strip().lower()
        if word in _YES or word in _ALWAYS:
            return {"action": "accept", "always": word in _ALWAYS}
        return {"action": "decline"} if word in _NO else None

    def _tell_where(self, id: str) -> None:  # noqa: A002 - as above
        self._terminal.note(
            f"(the run waits: answer with `pallas answer {one_line(id, 60)}`, or in the workbench with Q)",
            BOLD,
        )


def _shown(question: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The lines that show a question, each with its style."""
    path = [*(question.get("path") or ()), question.get("agent") or "?"]
    asker = " > ".join(one_line(str(each), 80) for each in path)
    until = _until(question.get("expiresAt"))
    if question.get("kind") == "form":
        server = one_line(str(question.get("server") or ""), 80)
        lines = [(f"[{asker} wants a form filled in{f' for {server}' if server else ''}{until}]", BOLD)]
        message = sanitize(str(question.get("message") or ""), _ARGUMENTS)
        return lines + [(f"  {line}", "") for line in message.splitlines()[:_LINES]]
    tool = one_line(str(question.get("tool") or "?"), 200)
    lines = [(f"[{asker} asks before it calls {tool}{until}]", BOLD)]
    arguments = question.get("arguments")
    if arguments not in (None, "", {}):
        text = (
            arguments if isinstance(arguments, str) else json.dumps(arguments, indent=2, ensure_ascii=False)
        )
        shown = sanitize(text, _ARGUMENTS).splitlines()
        lines += [(f"  {line}", "") for line in shown[:_LINES]]
        lines += [("  …", DIM)] if len(shown) > _LINES else []
    return lines


def _until(iso: Any) -> str:
    try:
        at = datetime.fromisoformat(iso).astimezone()
    except (TypeError, ValueError):
        return ""
    return f", until {at:%H:%M:%S}"


def _said(ended: Mapping[str, Any]) -> str:
    if ended.get("action") != "accept":
        return "refused"
    return "allowed always" if ended.get("always") else "accepted"


def _outcome(chunk: Mapping[str, Any]) -> str:
    reason = chunk.get("reason")
    if reason:
        return "there was no answer in time" if reason == "expired" else "the question was withdrawn"
    words = {"accept": "accepted", "decline": "refused"}
    by = one_line(str(chunk.get("by") or ""), 100)
    return words.get(str(chunk.get("action")), "cancelled") + (f" by {by}" if by else "")
