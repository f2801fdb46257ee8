"""Reports each complete message of an agent's loop: tool calls before they are made, and answers.

A run that ends in the middle of its loop leaves no history, so its messages are reported on the way.
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
from .loop_guard import merged
from .message_conversion import to_message

_MAX_TEXT = 8 * 1024 * 1024


class TextStream:
    """Reports the messages of one agent's loop in one run. ``native`` adds the library's own form to each."""

    def __init__(self, run_id: str, agent: str, emit: Emit, *, native: bool) -> None:
        self._run_id = run_id
        self._agent = agent
        self._emit = emit
        self._native = native

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
            before_tool_call=merged(hooks.before_tool_call, self._tell),
            after_tool_call=merged(hooks.after_tool_call, self._tell),
        )
        try:
            yield
        finally:
            agent.tool_runner_hooks = before

    async def _tell(self, runner: ToolRunner, native: PromptMessageExtended) -> None:
        message = to_message(native)
        self._emit(
            LoopMessage(
                run_id=self._run_id,
                agent=self._agent,
                role=message.role,
                text=sanitize(message.text, _MAX_TEXT),
                calls=message.calls,
                answers=message.answers,
                native=(packed_of(message.native) or "") if self._native else "",
            )
        )
