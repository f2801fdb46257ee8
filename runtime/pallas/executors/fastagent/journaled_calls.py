"""Makes tool calls only for a run that this fleet still has, and stores results before all have returned.

``tests/contract/test_journaled_calls.py`` fails when fast-agent calls its tools in another way.
"""

from collections.abc import Callable
from typing import Any

from fast_agent.agents.tool_runner import ToolRunner
from fast_agent.types import PromptMessageExtended

from ..base import TurnJournal
from .call_meta import naming_call
from .send_gate import gating


class JournaledCalls:
    """The calls of one durable turn."""

    def __init__(self, journal: TurnJournal, run_id: str, attempt: int) -> None:
        self._journal = journal
        self._run_id = run_id
        self._attempt = attempt
        self._open: set[str] = set()

    async def before(self, runner: ToolRunner, message: PromptMessageExtended) -> None:
        """Wait until the message with the calls is stored. A hook of the agent that answers."""
        calls = message.tool_calls or {}
        await self.begin(*calls)

    async def after(self, runner: ToolRunner, message: PromptMessageExtended) -> None:
        """Let the run go on elsewhere if this fleet stops. A hook of the agent that answers."""
        await self._journal.step_over()

    async def begin(self, *call_ids: str) -> None:
        """Wait until the message with these calls is stored."""
        # The result of a single call is stored with its message, a moment later.
        self._open = set(call_ids) if len(call_ids) > 1 else set()
        await self._journal.committed()

    async def call(self, call_id: str | None, own: bool, make: Callable[[], Any]) -> Any:
        """Make a call; ``own`` says that the agent that answers makes it, and no sub-agent."""
        await self._journal.still_ours()
        with gating(self._journal):
            if not own or call_id is None:
                return await make()
            with naming_call(self._run_id, call_id, self._attempt):
                result = await make()
        if call_id in self._open:
            self._journal.returned(call_id, result.model_dump_json(by_alias=True, exclude_none=True))
        return result


def watch_calls(agent: Any, *, own: bool, current: Callable[[], JournaledCalls | None]) -> None:
    """Have each tool call of this agent made by the calls of the current turn, if it is durable."""
    original = getattr(agent, "call_tool", None)
    if original is None:
        return

    async def call_tool(
        name: str,
        arguments: dict[str, Any] | None = None,
        tool_use_id: str | None = None,
        **options: Any,
    ) -> Any:
        def make() -> Any:
            return original(name, arguments, tool_use_id, **options)

        calls = current()
        return await (make() if calls is None else calls.call(tool_use_id, own, make))

    agent.call_tool = call_tool
