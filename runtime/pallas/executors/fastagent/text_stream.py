"""Reports each complete message of an agent's loop: tool calls before they are made, and answers.

A run that ends in the middle of its loop leaves no history, so its messages are reported on the way. Calls of
a durable turn are made when their message is stored.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fast_agent.agents.tool_runner import ToolRunner, ToolRunnerHooks
from fast_agent.types import PromptMessageExtended

from pallas.model import LoopMessage
from pallas.model.packed import packed_of
from pallas.safe_text import sanitize

from ..base import Emit
from .journaled_calls import JournaledCalls
from .loop_guard import merged
from .message_conversion import to_message

_MAX_TEXT = 8 * 1024 * 1024


class TextStream:
    """Reports the messages of one agent's loop in one run. ``native`` adds the library's own form to each."""

    def __init__(
        self, run_id: str, agent: str, emit: Emit, *, native: bool, calls: JournaledCalls | None = None
    ) -> None:
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self._native = native
        self._calls = calls

    @contextmanager
    def reported(self, agent: Any) -> Iterator[None]:
        """Add hooks to the agent that answers until the block ends; sub-agents are not reported."""
        if not hasattr(agent, "tool_runner_hooks"):
            yield
            return
        before: ToolRunnerHooks | None = agent.tool_runner_hooks
        hooks = before or ToolRunnerHooks()
        agent.tool_runner_hooks = replace(
            hooks,
            before_tool_call=merged(
                merged(hooks.before_tool_call, self._tell), self._calls.before if self._calls else None
            ),
            after_tool_call=merged(
                merged(hooks.after_tool_call, self._tell), self._calls.after if self._calls else None
            ),
        )
        try:
            yield
        finally:
            agent.tool_runner_hooks = before

    async def _tell(self, runner: ToolRunner, native: PromptMessageExtended) -> None:
        self._emit(loop_message(native, self._run_id, self._agent, native=self._native))


def loop_message(message: PromptMessageExtended, run_id: str, agent: str, *, native: bool) -> LoopMessage:
    """Return the event for one message of a loop."""
    ours = to_message(message)
    return LoopMessage(
        run_id=run_id,
        agent=agent,
        role=ours.role,
        text=sanitize(ours.text, _MAX_TEXT),
        calls=ours.calls,
        answers=ours.answers,
        native=(packed_of(ours.native) or "") if native else "",
    )
