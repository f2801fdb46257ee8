"""One message and its answer: send it, show the answer as it arrives, cancel it on request."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final

from pallas.client import ChatStream, RestClient, fault_in
from pallas.deadlines import cancel_and_wait
from pallas.model import Fault, FaultType
from pallas.model.money import cost_in
from pallas.safe_text import PieceSanitizer, json_escape, one_line, replace_invisible, sanitize

from .chat_questions import ChatQuestions
from .chat_terminal import BOLD, DIM, RED, ChatTerminal
from .terminal_lines import terminal_lines

CANCEL_PATIENCE: Final = 5.0
"""Seconds that a cancelled run has to report its end."""
_PACE: Final = 0.2
_MAX_ARGS: Final = 120
_CHOSEN: Final = ("backend", "routed", "rerouted", "missingServers", "notices")


@dataclass(slots=True)
class ChatReply:
    """The result of a message. ``fault`` says why there is no answer; ``document`` is one that came whole.

    ``chosen`` says which agent answered when that is not obvious, and without what: backend, routed,
    rerouted, missingServers, and notices, as the API reports them.
    """

    text: str = ""
    thread: str = ""
    turn_index: int | None = None
    run: str = ""
    fault: Fault | None = None
    cancelled: bool = False
    seconds: float = 0.0
    tools: int = 0
    document: dict[str, Any] = field(default_factory=dict)
    chosen: dict[str, Any] = field(default_factory=dict)


class ChatTurn:
    """Sends one message to ``agent`` and shows the answer on ``terminal``.

    With ``frames`` stdout gets one line of JSON for each chunk. With ``quiet`` it gets nothing, and the
    caller prints the answer.
    """

    def __init__(
        self,
        api: RestClient,
        agent: str,
        terminal: ChatTerminal,
        *,
        frames: bool = False,
        quiet: bool = False,
    ) -> None:
        self._api, self._agent, self._terminal = api, agent, terminal
        self._questions = ChatQuestions(api, terminal, terminal_lines(terminal))
        self._frames, self._quiet = frames, quiet
        self._answer = ChatReply()
        self._stream: ChatStream | None = None
        self._work: asyncio.Task[None] | None = None
        self._told_to_end: asyncio.Task[None] | None = None
        self._began = monotonic()
        self._first: float | None = None
        self._letters = 0
        # The number of text pieces that are final, even if later ones are taken back.
        self._stands = 0
        self._doing = ""
        self._shown, self._thoughts = PieceSanitizer(), PieceSanitizer()

    async def ask(self, body: Mapping[str, Any], *, stream: bool = True) -> ChatReply:
        """Run the whole turn. A run that fails or cannot begin is ``fault``; BrokenPipeError is raised."""
        self._work = asyncio.create_task(
            self._read(body) if stream else self._complete_answer(body), name="answer"
        )
        shown = asyncio.create_task(self._tick(), name="status line")
        try:
            await asyncio.wait({self._work})
            await self._heed(self._work)
        except (BrokenPipeError, asyncio.CancelledError):
            await self._abandon()
            raise
        finally:
            shown.cancel()
            await self._questions.close()
            for task in (self._work, self._told_to_end):
                if task is not None and not task.done():
                    await cancel_and_wait(task, seconds=1.0)
            if self._stream is not None:
                with suppress(Exception):
                    await self._stream.aclose()
            self._terminal.settle()
        self._answer.seconds = monotonic() - self._began
        return self._answer

    def cancel(self) -> None:
        """Ask for the run to end. It reports its end itself, or is abandoned after some seconds."""
        if self._answer.cancelled or self._work is None or self._work.done():
            return
        self._answer.cancelled = True
        self._terminal.note("(cancelling …)")
        run = self._stream.run_id if self._stream is not None else ""
        if run:
            self._told_to_end = asyncio.create_task(self._end(run), name="cancel run")
        else:  # No run has begun, or it ends with the request.
            self._work.cancel()

    async def _abandon(self) -> None:
        """Stop waiting for the answer and cancel the run: it has no reader any more."""
        if self._stream is not None and self._stream.run_id:
            with suppress(Fault, TimeoutError):
                await asyncio.wait_for(self._api.cancel(self._stream.run_id), CANCEL_PATIENCE)

    async def _end(self, run: str) -> None:
        assert self._work is not None
        with suppress(Fault):
            await self._api.cancel(run)
        await asyncio.wait({self._work}, timeout=CANCEL_PATIENCE)
        self._work.cancel()

    async def _heed(self, work: asyncio.Task[None]) -> None:
        try:
            await work
        except Fault as fault:
            self._answer.fault = fault
        except asyncio.CancelledError:
            if not self._answer.cancelled:
                raise

    async def _complete_answer(self, body: Mapping[str, Any]) -> None:
        document = await self._api.answer(self._agent, body)
        self._answer.document = document
        self._answer.text = str(document.get("text") or "")
        self._answer.run = str(document.get("runId") or "")
        self._ended(document)
        if not self._quiet:
            self._terminal.text(sanitize(self._answer.text))
            self._terminal.end_text()
            self._tell_chosen()

    async def _read(self, body: Mapping[str, Any]) -> None:
        self._stream = self._api.chat(self._agent, body)
        parts: list[str] = []
        async for chunk in self._stream:
            self._answer.run = self._stream.run_id
            self._answer.thread = self._answer.thread or self._stream.thread_id
            if self._frames:
                self._terminal.text(as_json(chunk) + "\n")
            self._take(chunk, parts)
        self._answer.text = "".join(parts)
        if not self._frames and not self._quiet:
            self._end_text()
            self._tell_chosen()

    def _end_text(self) -> None:
        self._terminal.text(self._shown.end())
        self._terminal.end_text()

    def _tell_chosen(self) -> None:
        """Show which agent answered in place of the requested one, and why (DR-16, DR-32)."""
        if routed := self._answer.chosen.get("routed"):
            self._tell(f"(answered by {one_line(str(routed), 100)}, chosen by {self._agent})")
        rerouted = self._answer.chosen.get("rerouted")
        for line in rerouted if isinstance(rerouted, list) else ():
            self._tell(f"(answered by another provider: {one_line(str(line), 300)})")
        notices = self._answer.chosen.get("notices")
        for line in notices if isinstance(notices, list) else ():
            self._tell(f"({one_line(str(line), 300)})")
        missing = self._answer.chosen.get("missingServers")
        for name, why in missing.items() if isinstance(missing, dict) else ():
            self._tell(f"(answered without the server {one_line(str(name), 100)}: {one_line(str(why), 200)})")

    def _take(self, chunk: Mapping[str, Any], parts: list[str]) -> None:
        kind = chunk.get("type")
        if kind != "text":
            self._terminal.text(self._shown.end())
        if kind != "thinking":
            self._terminal.aside(self._thoughts.end())
        if kind == "text":
            delta = str(chunk.get("delta") or "")
            parts.append(delta)
            self._count(delta)
            if not self._frames and not self._quiet:
                self._terminal.text(self._shown.feed(delta))
        elif kind == "thinking":
            delta = str(chunk.get("delta") or "")
            self._count(delta)
            if not self._frames:
                self._terminal.aside(self._thoughts.feed(delta))
        elif kind == "rollback":
            self._void(parts)
        elif kind == "tool_call":
            self._stands = len(parts)
            self._answer.tools += 1
            self._doing = one_line(str(chunk.get("toolName") or "?"), 100)
            self._tell(f"[tool: {self._doing}{_arguments(chunk.get('args'))}]")
        elif kind == "tool_result":
            self._stands = len(parts)
            name, self._doing = one_line(str(chunk.get("toolName") or "?"), 100), ""
            self._tell(f"[tool: {name} {'ok' if chunk.get('ok') else 'failed'}]")
        elif kind in ("question", "question_answered") and not self._frames:
            self._heard(str(chunk.get("question") or ""), chunk)
        elif kind == "retry":
            reason, wait = one_line(str(chunk.get("reason") or "?"), 100), chunk.get("wait")
            after = f" in {wait:.0f} s" if isinstance(wait, int | float) and wait >= 1 else ""
            self._tell(f"[{reason}, retry {chunk.get('retry')} of {chunk.get('retries')}{after}]")
        elif kind == "final":
            self._ended(chunk)
        elif kind == "error" and self._answer.fault is None:
            self._answer.fault = fault_in(chunk)

    def _heard(self, question: str, chunk: Mapping[str, Any]) -> None:
        """A run asks a person, or has the answer."""
        if chunk.get("type") == "question":
            self._questions.asked(question)
        else:
            self._questions.answered(question, chunk)

    def _void(self, parts: list[str]) -> None:
        """Take back the text since the last tool, or the start. On stdout it is already written."""
        if not self._frames and not self._quiet:
            self._end_text()
        del parts[self._stands :]
        self._tell(
            "[the provider's answer broke off; it is asked again, and the text since the last tool "
            "starts again]"
            if self._stands or self._answer.tools
            else "[the provider's answer broke off; it is asked again, and the answer starts again]"
        )

    def _tell(self, line: str) -> None:
        if not self._frames:
            self._terminal.note(line)

    def _ended(self, document: Mapping[str, Any]) -> None:
        self._answer.thread = sanitize(str(document.get("threadId") or self._answer.thread))
        self._answer.chosen = {key: document[key] for key in _CHOSEN if document.get(key)}
        index = document.get("turnIndex")
        self._answer.turn_index = index if isinstance(index, int) else None

    def _count(self, delta: str) -> None:
        if self._first is None and delta:
            self._first = monotonic()
        self._letters += len(delta)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_PACE)
            if not self._questions.is_asking:
                self._terminal.show(self._status())

    def _status(self) -> str:
        now = monotonic()
        parts = [f"{now - self._began:.1f} s"]
        if self._first is not None:
            # About four characters per token; the true number is shown at the end.
            tokens = self._letters / 4
            parts.append(f"~{tokens:.0f} tokens")
            parts.append(f"~{tokens / max(0.2, now - self._first):.0f}/s")
        if self._questions.waits:
            parts.append("waits for an answer")
        parts.append(f"calls {self._doing}" if self._doing else "" if self._first else "waiting")
        if self._answer.cancelled:
            parts.append("cancelling; ctrl-c again leaves at once")
        return "  " + " · ".join(part for part in parts if part)


def as_json(document: Any, indent: int | None = None) -> str:
    """Return JSON of exactly that value which a terminal can show: what is not seen is escaped in it."""
    return replace_invisible(json.dumps(document, ensure_ascii=False, indent=indent), json_escape)


def figures(answer: ChatReply, run: Mapping[str, Any]) -> str:
    """Return what an answer took, in one line. ``run`` is the fleet's facts about it; empty for none."""
    seconds = run.get("seconds")
    took = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else answer.seconds
    parts = [f"{took:.1f} s"]
    steps, tools = run.get("steps"), run.get("tools")
    if isinstance(steps, int) and steps:
        parts.append(f"{steps} step{'' if steps == 1 else 's'}")
    count = tools if isinstance(tools, int) else answer.tools
    if count:
        parts.append(f"{count} tool call{'' if count == 1 else 's'}")
    usage = run.get("usage")
    if isinstance(usage, Mapping):
        taken, given = usage.get("inputTokens"), usage.get("outputTokens")
        if isinstance(taken, int) and isinstance(given, int):
            parts.append(f"{taken} tokens in, {given} out")
            if took > 0 and given:
                parts.append(f"{given / took:.0f} tokens/s")
    parts.append(cost_in(run, tree=True).words)
    return " · ".join(part for part in parts if part)


def problem_of(fault: Fault) -> str:
    """Return a Fault as shown, with whether a retry may help."""
    again = fault.retryable and fault.type is not FaultType.TIMEOUT
    return f"error: {fault.message}" + (" (trying again may help)" if again else "")


def tell_end(terminal: ChatTerminal, answer: ChatReply) -> None:
    """Show why there is no answer, or only part of it."""
    if answer.fault is not None and not answer.cancelled:
        terminal.note(problem_of(answer.fault), RED)
    elif answer.cancelled:
        terminal.note("cancelled", BOLD)


def tell_thread(terminal: ChatTerminal, thread: str) -> None:
    """Show the id with which the conversation can be continued."""
    if thread:
        terminal.note(f"(thread: {thread})", DIM)


def _arguments(args: Any) -> str:
    if args in (None, {}, ""):
        return ""
    text = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
    return " " + one_line(text, _MAX_ARGS)
