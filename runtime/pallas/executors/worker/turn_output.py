"""The output of a worker during one turn, as events of the run, and the history for a new session."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from pallas.model import Fault, FaultType, Message, Notice, StepStarted, TextDelta, ToolEvent
from pallas.model.questions import Question
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import begin_call_step
from pallas.telemetry.trace_context import current_run, working_for

from ..base import Emit, ExecutorTurn

_LABEL: Final = re.compile(r"([\w.-]{1,64})/([\w.-]{1,128})(?:\(.*)?", re.DOTALL)
_MAX_OPEN: Final = 1_000
_MAX_NOTICES: Final = 10


class TurnOutput:
    """Emits the text, steps and tools of one turn of a worker, sanitised.

    Emits nothing once ``is_ended``. ``full`` is done when the text has more than ``limit`` characters.
    """

    def __init__(self, turn: ExecutorTurn, emit: Emit, limit: int) -> None:
        self._turn = turn
        self._emit = emit
        self._left = limit
        self._blocks: list[str] = []
        self._pieces: list[str] = []
        self._held = ""
        self._message: str | None = None
        self._open: dict[str, tuple[str, str]] = {}
        self._run = current_run()
        self._steps: dict[str, OpenStep] = {}
        self._notices = 0
        self._step = 0
        self._in_tools = False
        # What the worker says that it was paid for, in nano-US-dollars; None if it does not say.
        self.cost: int | None = None
        self._people = turn.people
        self._asking: set[asyncio.Task[Question]] = set()
        self.is_ended = False
        self.full: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def begin(self) -> None:
        """Begin the first step: the worker has the question."""
        self._step_to(tools=False)

    def text(self, text: str, *, reasoning: bool = False, message: str | None = None) -> None:
        """Add a piece of the answer or of its reasoning; ``message`` is the id of its message."""
        if self.is_ended or self.full.done() or not text:
            return
        if self._in_tools:
            self._step_to(tools=False)
        if not reasoning:
            if message is not None and self._message not in (None, message) and self._pieces:
                self._step_to(tools=False)
            self._message = message or self._message
            # "\r\n" may come in two pieces.
            text, self._held = self._held + text, ""
            if text.endswith("\r"):
                text, self._held = text[:-1], "\r"
        clean = sanitize(text)
        self._left -= len(clean)
        if self._left < 0:
            self.full.set_result(None)
            return
        if clean and not reasoning:
            self._pieces.append(clean)
        if clean:
            self._emit(
                TextDelta(run_id=self._turn.run_id, agent=self._turn.agent, text=clean, reasoning=reasoning)
            )

    def tool(
        self,
        call: str,
        *,
        title: str = "",
        kind: str = "",
        status: str = "",
        given: Any = None,
        result: Any = None,
    ) -> None:
        """Report that a tool of the worker was called or changed its ``status``, as in ACP.

        ``given`` and ``result`` are its input and output, if the worker says them.
        """
        if self.is_ended:
            return
        call = one_line(call, 64)
        if call not in self._open:
            if len(self._open) >= _MAX_OPEN or (not title and status not in ("pending", "in_progress")):
                return
            if not self._in_tools:
                self._step_to(tools=True)
            self._open[call] = _label(title, kind)
            self._begin_step(call)
            self._tool(call, "started")
        step = self._steps.get(call)
        if step is not None and given is not None:
            step.arguments(given if isinstance(given, Mapping) else {"input": given})
        if step is not None and result is not None:
            text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False, default=str)
            step.content([{"type": "text", "text": text}], is_error=status == "failed")
        if status in ("completed", "failed"):
            self._tool(call, status)
            del self._open[call]

    def _begin_step(self, call: str) -> None:
        with working_for(self._run):
            step = begin_call_step("tool", "__".join(self._open[call]), {}, call_id=call)
        if step is not None:
            self._steps[call] = step

    async def approval(self, call: str, *, title: str, kind: str, given: Any) -> Question | None:
        """Ask a person whether the worker may make a call; None if the turn is over before the answer.

        Raises Fault if no person can be asked.
        """
        if self._people is None:
            raise Fault(FaultType.UPSTREAM, "there is no person to ask")
        if self.is_ended:
            return None
        server, tool = _label(title, kind)
        name, is_whole = f"{server}__{tool}", one_line(title, 80) == sanitize(title.strip())
        if not is_whole:  # other titles may have the same label
            name = f"{name} {sha256(title.encode('utf-8', 'replace')).hexdigest()[:12]}"
        is_shown = is_whole and isinstance(given, Mapping)
        arguments = given if is_shown else {"title": title, "input": given}
        work = self._people.approve(
            tool=name,
            arguments=arguments,
            call_id=one_line(call, 64),
            message=one_line(title, 300),
        )
        task = asyncio.ensure_future(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        await asyncio.wait({task})
        return None if task.cancelled() else task.result()

    def notice(self, text: str) -> None:
        """Emit a notice for people; only the first few of a turn are emitted."""
        self._notices += 1
        if not self.is_ended and self._notices <= _MAX_NOTICES:
            self._emit(Notice(level="warning", agent=self._turn.agent, text=one_line(text, 300)))

    def end(self, *, ok: bool) -> tuple[str, ...]:
        """End the turn and return its texts in order. Tools that still run end as the turn did."""
        if not self.is_ended:
            for call in list(self._open):
                self._tool(call, "completed" if ok else "failed")
            self._open.clear()
            self._end_block()
            for task in self._asking:
                task.cancel()
            self.is_ended = True
        return tuple(self._blocks)

    def _tool(self, call: str, phase: str) -> None:
        server, tool = self._open[call]
        if phase != "started" and (step := self._steps.pop(call, None)) is not None:
            step.finish("failed" if phase == "failed" else "done")
        turn = self._turn
        self._emit(
            ToolEvent(
                run_id=turn.run_id,
                agent=turn.agent,
                server=server,
                tool=tool,
                phase="started" if phase == "started" else "failed" if phase == "failed" else "completed",
                call_id=call,
            )
        )

    def _step_to(self, *, tools: bool) -> None:
        self._end_block()
        self._step += 1
        self._in_tools = tools
        turn = self._turn
        kind: Final = "tool" if tools else "llm"
        self._emit(
            StepStarted(run_id=turn.run_id, agent=turn.agent, actor=turn.agent, step=self._step, kind=kind)
        )

    def _end_block(self) -> None:
        if block := "".join(self._pieces):
            self._blocks.append(block)
        self._pieces.clear()
        self._held = ""


def _label(title: str, kind: str) -> tuple[str, str]:
    """Return server and tool of a call: from its title if that is such a label, else its kind and title."""
    line = one_line(title, 200) or "tool"
    if found := _LABEL.fullmatch(line):
        return found[1], found[2]
    return (one_line(kind, 32) if kind and kind != "other" else "worker"), one_line(line, 80)


def history_block(history: Sequence[Message], limit: int) -> str:
    """Return a conversation's history for a session that does not know it, as a block of text.

    It has one JSON object per line, so no message can end the block, and the newest messages that fit in
    ``limit`` characters. Empty without a history.
    """
    lines: list[str] = []
    for message in reversed(history):
        entry: dict[str, object] = {"role": message.role, "text": message.text}
        if message.images:
            entry["images"] = len(message.images)
        if message.summary:
            entry["summary"] = True
        line = json.dumps(entry, ensure_ascii=False)
        if limit < len(line):
            break
        limit -= len(line)
        lines.append(line)
    if not history:
        return ""
    missing = len(history) - len(lines)
    head = f"[Conversation so far: {len(lines)} messages, one JSON object per line"
    head += f"; {missing} older ones are left out]" if missing else "]"
    return sanitize("\n".join((head, *reversed(lines), "[End of the conversation so far]")))
