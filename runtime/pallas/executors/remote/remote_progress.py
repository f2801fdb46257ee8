"""Converts the other side's progress to events of the run here."""

import re
from itertools import count
from typing import Final, Literal, cast

from pallas.executors.base import Emit, ExecutorTurn
from pallas.model import StepStarted, TextDelta, ToolEvent, ToolPhase
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import enclosing_call
from pallas.telemetry.trace_context import current_run

_TOOL: Final = re.compile(r"^([^/\n]+)/([^\n]+): (started|completed|failed)$")
_STEP: Final = re.compile(r"^(\S+) step (\d{1,6}) \((llm|tool)\)$")
# fast-agent's format for its own loop.
_LOOP: Final = re.compile(r"^([^/\n]+)/agent_loop: (?:step (\d{1,6}) \((llm|tool)|.*)")
_TEXT: Final = re.compile(r"(\S{1,100}) » (.*)", re.DOTALL)

MAX_LINES: Final = 20_000
"""The limit of progress lines of one run."""
MAX_TEXT: Final = 2_000_000
"""The limit of streamed text of one run, in characters."""
_MAX_PIECE: Final = 64_000
_FAILED: Final = "it failed on the other side, or the call of the agent ended before it"


class Progress:
    """Converts the progress of one call. ``speaker`` is the other side's own name, which is our agent here.

    All text is sanitised and limited here. Calls of the other side's tools are steps of the run that this was
    made in, below its call of the agent; what they were asked and answered is not known here.
    """

    def __init__(self, turn: ExecutorTurn, emit: Emit, speaker: str) -> None:
        self._run_id, self._agent = turn.run_id, turn.agent
        self._with_text = turn.stream_text
        self._emit = emit
        self._speaker = speaker
        self._lines = 0
        self._characters = 0
        self._ids = count(1)
        self._open: dict[tuple[str, str], list[str]] = {}
        self._is_ended = False
        run = current_run()
        self._steps = run.steps if run is not None else None
        self._cause = enclosing_call(self._steps) if self._steps is not None else 0
        self._open_steps: dict[str, OpenStep] = {}

    async def hear(self, progress: float, total: float | None, message: str | None) -> None:
        """Convert one notification; its numbers add nothing to its message."""
        if not message or self._is_ended or self._lines >= MAX_LINES:
            return
        self._lines += 1
        if match := _TEXT.fullmatch(message[: 2 * _MAX_PIECE]):
            self._text(match[1], match[2])
            return
        line = one_line(message, 200)
        if match := _LOOP.match(line):
            if match[2]:
                self._step(match[1], match[2], match[3])
        elif match := _TOOL.match(line):
            self._tool(match[1], match[2], match[3])
        elif match := _STEP.match(line):
            self._step(match[1], match[2], match[3])

    def end(self) -> None:
        """End calls of the other side that are still open."""
        if self._is_ended:
            return
        for (server, tool), calls in list(self._open.items()):
            for _ in tuple(calls):
                self._tool(server, tool, "failed")
        self._is_ended = True

    def _actor(self, name: str) -> str:
        """Return the name to show: no agent further away may use the name of our own agent."""
        name = one_line(name, 80).replace(" ", "-")
        if name == self._speaker or not self._speaker:
            return self._agent
        return f"{one_line(self._speaker, 80)}/{name}" if name == self._agent else name

    def _step(self, actor: str, step: str, kind: str) -> None:
        self._emit(
            StepStarted(
                run_id=self._run_id,
                agent=self._agent,
                actor=self._actor(actor),
                step=int(step),
                kind=cast(Literal["llm", "tool"], kind),
            )
        )

    def _tool(self, server: str, tool: str, phase: str) -> None:
        # Lines carry no id: the oldest open call of that name is the one that ends.
        calls = self._open.setdefault((server, tool), [])
        if phase == "started" or not calls:
            calls.append(f"{self._run_id}.{next(self._ids)}")
        call_id = calls[-1] if phase == "started" else calls.pop(0)
        if not calls:
            del self._open[server, tool]
        self._record(f"{server}__{tool}", phase, call_id)
        self._emit(
            ToolEvent(
                run_id=self._run_id,
                agent=self._agent,
                server=server,
                tool=tool,
                phase=cast(ToolPhase, phase),
                call_id=call_id,
            )
        )

    def _record(self, name: str, phase: str, call_id: str) -> None:
        if self._steps is None:
            return
        if call_id not in self._open_steps:
            self._open_steps[call_id] = self._steps.begin(
                "tool", name=name, parent=self._cause, call_id=call_id
            )
        if phase != "started":
            step = self._open_steps.pop(call_id)
            step.finish("done" if phase == "completed" else "failed", "" if phase == "completed" else _FAILED)

    def _text(self, actor: str, text: str) -> None:
        if not self._with_text or self._characters >= MAX_TEXT:
            return
        self._characters += len(text)
        who = self._actor(actor)
        self._emit(
            TextDelta(
                run_id=self._run_id,
                agent=self._agent,
                text=sanitize(text, _MAX_PIECE),
                actor="" if who == self._agent else who,
            )
        )
