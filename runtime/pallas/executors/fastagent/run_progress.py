"""Turns fast-agent's tool and loop callbacks into events and steps of a run."""

import re
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final, Literal, cast

from pallas.model import StepStarted, TextDelta, ToolEvent, ToolPhase
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line, sanitize
from pallas.telemetry.open_step import OpenStep
from pallas.telemetry.step_record import begin_call_step
from pallas.telemetry.trace_context import begin_call

from ..base import Emit
from .forward_trace import begin_tool, structured_content, tool_exception

_LOOP: Final = "agent_loop"
_MAX_ERROR: Final = 300
# fast-agent's server name for a tool that is a function of the agent.
_OWN: Final = "local"
# Its server name for a tool that is another agent of the same definition.
_AGENT: Final = "agent"
_NO_LABELS: Final[Mapping[str, tuple[str, str]]] = {}
_STEP: Final = re.compile(r"^step (\d+) \((llm|tool)")
_NESTED_TOOL: Final = re.compile(r"^([^/\n]+)/([^\n]+): (started|completed|failed)$")
_NESTED_STEP: Final = re.compile(r"^(\S+) step (\d+) \((llm|tool)\)$")
_NESTED_TEXT: Final = re.compile(r"(\S{1,100}) » (.*)", re.DOTALL)
# The longest piece of text from a called agent; an agent of ours never sends more at once.
_MAX_PIECE: Final = 64_000
MAX_LINES: Final = 20_000
"""The limit of progress lines of servers in one run."""


class RunProgress:
    """The tool execution handler of one run: fast-agent calls it, and it emits events.

    A line that a sub-agent sends as progress of its tool call becomes a nested event of this run. Labels
    are sanitised here. The counters are read when the run has ended. ``labels`` maps tools of the agent
    itself (its peers), by name in lower case, to the server and tool to report. ``own`` is the agent's name
    in its code, if that differs from the configured one.
    """

    def __init__(
        self, run_id: str, agent: str, emit: Emit, *, own: str = "", with_text: bool = False
    ) -> None:
        self._with_text = with_text
        self._own = own
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self._ids = count(1)
        self._loops: dict[str, str] = {}
        self._calls: dict[str, tuple[str, str]] = {}
        self._spans: dict[str, str] = {}
        self._call_steps: dict[str, OpenStep] = {}
        self._nested: dict[tuple[str, str, str], list[str]] = {}
        self._lines = 0
        self.labels = _NO_LABELS
        self.steps = 0
        self.tools = 0

    async def on_tool_start(
        self,
        tool_name: str,
        server_name: str,
        arguments: dict[str, Any] | None,
        tool_use_id: str | None = None,
    ) -> str:
        """Report the start of a call; return the id for its end."""
        call_id = f"{self._run_id}.{next(self._ids)}"
        if tool_name == _LOOP:
            own = server_name == self._own
            self._loops[call_id] = self._agent if own else one_line(server_name, 80).replace(" ", "-")
            return call_id
        label = self._label(server_name, tool_name)
        self._calls[call_id] = label
        self.tools += 1
        # The call is made next in this context: it sends this span along.
        self._spans[call_id] = span = begin_call()
        begin_tool()
        is_peer = label is self.labels.get(tool_name.casefold())
        step = begin_call_step(
            "agent" if is_peer or server_name == _AGENT else "tool",
            label[0] if is_peer else label[1] if server_name == _AGENT else f"{label[0]}__{label[1]}",
            arguments,
            call_id=call_id,
            span_id=span,
            tool_use_id=tool_use_id or "",
        )
        if step is not None:
            self._call_steps[call_id] = step
        self._tool(label, "started", call_id)
        return call_id

    async def on_tool_progress(
        self, tool_call_id: str, progress: float, total: float | None, message: str | None
    ) -> None:
        """Report progress of a call: steps of our own loop, or the events of a sub-agent."""
        if not message:
            return
        actor = self._loops.get(tool_call_id)
        if actor is not None:
            if match := _STEP.match(message):
                self._step(actor, int(match[1]), match[2])
            return
        self._lines += 1
        if self._lines > MAX_LINES:
            return
        if match := _NESTED_TEXT.fullmatch(message):
            self._nested_text(match[1], match[2])
            return
        line = one_line(message, 200)
        if match := _NESTED_TOOL.match(line):
            self._nested_tool(tool_call_id, match[1], match[2], match[3])
        elif match := _NESTED_STEP.match(line):
            self._step(match[1], int(match[2]), match[3])

    async def on_tool_complete(
        self, tool_call_id: str, success: bool, content: Any, error: str | None
    ) -> None:
        """Report the end of a call; of an error's text, which is for the model, only the last line."""
        if self._loops.pop(tool_call_id, None) is not None:
            return
        label = self._calls.pop(tool_call_id, None)
        if label is not None:
            last = "" if success else tool_exception() or (error or "").strip().rpartition("\n")[2]
            phase: ToolPhase = "completed" if success else "failed"
            error_line = one_line(redact_text(last), _MAX_ERROR)
            if (step := self._call_steps.pop(tool_call_id, None)) is not None:
                blocks = _blocks(content, error)
                step.content(blocks, is_error=not success, structured=structured_content())
                step.finish("done" if success else "failed", error_line)
            self._tool(label, phase, tool_call_id, error=error_line)
            self._spans.pop(tool_call_id, None)

    async def on_tool_permission_denied(
        self, tool_name: str, server_name: str, tool_use_id: str | None, error: str | None = None
    ) -> None:
        """Report a call that was not allowed as started and failed."""
        call_id = await self.on_tool_start(tool_name, server_name, None, tool_use_id)
        await self.on_tool_complete(call_id, False, None, None)

    async def get_tool_call_id_for_tool_use(self, tool_use_id: str) -> str | None:
        """Return None: our ids are never derived from the model's."""
        return None

    async def ensure_tool_call_exists(
        self, tool_use_id: str, tool_name: str, server_name: str, arguments: dict[str, Any] | None = None
    ) -> str:
        """Ignore a call that the model is still writing: it is reported when it starts."""
        return f"{self._run_id}.announced"

    def abandon(self) -> None:
        """End every call that is still open, so that a cancelled run leaves none running on screen."""
        for call_id, label in list(self._calls.items()):
            self._tool(label, "failed", call_id)
        self._calls.clear()
        self._spans.clear()
        self._call_steps.clear()

    def _label(self, server: str, tool: str) -> tuple[str, str]:
        # A call that was refused beforehand comes with its own name as server and tool.
        if self.labels and server in (_OWN, tool) and (label := self.labels.get(tool.casefold())):
            return label
        # The model chooses the name of a tool that there is not.
        return one_line(server, 80).replace("/", "-"), one_line(redact_text(tool), 80)

    def _step(self, actor: str, step: int, kind: str) -> None:
        if actor == self._agent:
            self.steps = max(self.steps, step)
        self._emit(
            StepStarted(
                run_id=self._run_id,
                agent=self._agent,
                actor=actor,
                step=step,
                kind=cast(Literal["llm", "tool"], kind),
            )
        )

    def _tool(
        self, label: tuple[str, str], phase: ToolPhase, call_id: str, nested: bool = False, error: str = ""
    ) -> None:
        self._emit(
            ToolEvent(
                run_id=self._run_id,
                agent=self._agent,
                server=label[0],
                tool=label[1],
                phase=phase,
                call_id=call_id,
                nested=nested,
                span_id=self._spans.get(call_id, ""),
                error=error,
            )
        )

    def _nested_tool(self, parent: str, server: str, tool: str, phase: str) -> None:
        # Lines carry no id: the oldest open call of that name under that parent is the one that ends.
        key = (parent, server, tool)
        if phase == "started":
            call_id = f"{parent}.{next(self._ids)}"
            self._nested.setdefault(key, []).append(call_id)
        else:
            open_calls = self._nested.get(key) or [f"{parent}.{next(self._ids)}"]
            call_id = open_calls.pop(0)
        self._tool((server, tool), cast(ToolPhase, phase), call_id, nested=True)

    def _nested_text(self, actor: str, text: str) -> None:
        # No called agent may use the agent's own name; texts are passed on only if the caller asked.
        if self._with_text and (name := one_line(actor, 80)) != self._agent:
            text = sanitize(text, _MAX_PIECE)
            self._emit(TextDelta(run_id=self._run_id, agent=self._agent, actor=name, text=text))


def _blocks(content: Any, error: str | None) -> list[dict[str, Any]]:
    """The result of a call as plain values."""
    if error:
        return [{"type": "text", "text": error}]
    return [each.model_dump(mode="json", by_alias=True, exclude_none=True) for each in content or ()]


def stream_listener(
    emit_text: Callable[[str, bool], None], rollback: Callable[[], None], commit: Callable[[], None]
) -> Callable[[Any], None]:
    """Return a listener for fast-agent's stream chunks: deltas go to ``emit_text(text, reasoning)``.

    The text since the last ``commit`` is that of one call; ``rollback`` says that it does not count.
    """

    def listen(chunk: Any) -> None:
        if chunk.event == "rollback":
            rollback()
        elif chunk.event == "commit":
            commit()
        elif chunk.event == "delta" and chunk.text:
            emit_text(chunk.text, chunk.is_reasoning)

    return listen
