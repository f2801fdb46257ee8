"""Goes on with a turn in the middle: where another fleet stopped, this one before it was started again, or at
a step of another run.

What was said is loaded as history. A call that was begun there has a stored result, or its answer is lost:
then the agent's rules decide whether it is made again, fails the run, or is reported to the model.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from fast_agent.agents.tool_agent import ToolAgent
from fast_agent.types import PromptMessageExtended
from mcp_types import CallToolResult, TextContent
from pydantic import ValidationError

from pallas.model import Fault, FaultType, RunContinued
from pallas.model.questions import AGAIN
from pallas.model.unfinished_calls import LOST, UnfinishedPolicy
from pallas.safe_text import one_line

from ..base import Emit, ExecutorTurn
from ..tool_gate import check_repeatable, refused_by
from .downstreams_seam import downstreams_of
from .journaled_calls import JournaledCalls
from .message_conversion import FrozenMessage, native_copy, natives
from .text_stream import loop_message
from .tool_allowlist import SEPARATOR
from .tool_gate_seam import TurnGate, identity

_DONE = {
    "join": "continues",
    "unmade": "was not made; it is decided again",
    "ask": "a person is asked",
    "repeat": "called again",
    "tell": "told the model",
}
_AGAIN = ("join", "unmade", "repeat")


class ContinuedTurn:
    """What a turn had said, in fast-agent's form. ``question`` is its question."""

    def __init__(self, turn: ExecutorTurn, question: FrozenMessage) -> None:
        self._turn = turn
        self._said = natives(turn.said)
        self._open = self._said[-1] if self._said and self._said[-1].tool_calls else None
        last_is_input = bool(self._said) and self._open is None
        self.history = [question, *(self._said[:-1] if last_is_input else self._said)] if self._said else []
        """The messages before the next one, the question included; empty if nothing was said yet."""
        self._next = self._said[-1] if last_is_input else question

    async def next_message(
        self,
        agent: Any,
        params: Any,
        calls: JournaledCalls | None,
        gate: TurnGate,
        emit: Emit,
    ) -> PromptMessageExtended:
        """Return the message that the agent answers next, once the calls before it are done. Raises Fault.

        Call it when the history is loaded.
        """
        turn = self._turn
        if not isinstance(agent, ToolAgent):  # a workflow: what its agents did is not known
            await check_repeatable(turn)
        if self._open is None:
            self._tell((), emit)
            return self._next
        open_calls = dict(self._open.tool_calls or {})
        results = _stored(turn.results, open_calls)
        policies = {
            call_id: self._what_becomes_of(agent, call_id, call.params.name, gate.labels)
            for call_id, call in open_calls.items()
            if call_id not in results
        }
        lines = [
            f"{one_line(open_calls[each].params.name, 100)}: {_DONE.get(policy, 'fails the run')}"
            for each, policy in policies.items()
        ]
        self._tell(lines, emit)
        for call_id, policy in policies.items():
            if policy == "fail":
                raise _failed(open_calls[call_id].params.name)
        results |= {each: _lost() for each, policy in policies.items() if policy == "tell"}
        to_ask = {each: open_calls[each] for each, policy in policies.items() if policy == "ask"}
        refused = await self._ask(agent, to_ask, gate)
        results |= refused
        again = {each: open_calls[each] for each, policy in policies.items() if policy in _AGAIN}
        again |= {each: call for each, call in to_ask.items() if each not in refused}
        if again:
            if calls is not None:
                await calls.begin(*again, *results)
            asked = self._open.model_copy(update={"tool_calls": again})
            answered = await agent.run_tools(asked, request_params=params)
            results |= answered.tool_results or {}
        message = native_copy(
            PromptMessageExtended(
                role="user", content=[], tool_results={each: results[each] for each in open_calls}
            )
        )
        emit(loop_message(message, turn.run_id, turn.agent, native=turn.durable))
        return message

    def _tell(self, lines: Iterable[str], emit: Emit) -> None:
        turn = self._turn
        if turn.attempt > 1:  # else it goes on from another run, which is over
            emit(RunContinued(run_id=turn.run_id, agent=turn.agent, attempt=turn.attempt, calls=tuple(lines)))

    async def _ask(self, agent: Any, calls: Mapping[str, Any], gate: TurnGate) -> dict[str, CallToolResult]:
        """Ask a person whether lost calls are made again; returns the results of those that are not."""
        answers = await asyncio.gather(
            *(self._ask_again(agent, each, call, gate) for each, call in calls.items())
        )
        return {
            each: CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
            for each, text in zip(calls, answers, strict=True)
            if text
        }

    async def _ask_again(self, agent: Any, call_id: str, call: Any, gate: TurnGate) -> str:
        name, arguments = call.params.name, call.params.arguments or {}
        tool = await identity(agent, name, gate.labels)
        people = self._turn.people
        if people is None:
            return LOST
        shown = one_line(tool.names[-1], 100)
        try:
            question = await people.approve(
                tool=tool.names[-1],
                arguments=arguments,
                call_id=f"{call_id}{AGAIN}",
                server=tool.server,
                message=f"The fleet was stopped while {shown} was called: whether it was done is unknown. "
                "Look at what it did. May {agent} call it again?",
            )
        except Fault as fault:
            return f"{LOST}; {one_line(fault.message, 300)}"
        if question.is_accepted:
            gate.gate.grant(call_id)
            return ""
        return f"{LOST}; {refused_by(question)}"

    def _what_becomes_of(
        self, agent: Any, call_id: str, name: str, labels: Mapping[str, tuple[str, str]]
    ) -> str:
        if call_id in self._turn.unmade:
            return "unmade"
        return "join" if call_id in self._turn.nested else self._policy(agent, name, labels)

    def _policy(self, agent: Any, name: str, labels: Mapping[str, tuple[str, str]]) -> UnfinishedPolicy:
        if (peer := labels.get(name.casefold())) is not None:
            return self._turn.unfinished.policy(f"agent:{peer[0]}")
        server, separator, _ = name.partition(SEPARATOR)
        return self._turn.unfinished.policy(
            name, server=server if separator else "", is_safe=_is_safe(agent, name)
        )


def _stored(results: Mapping[str, str], calls: Mapping[str, Any]) -> dict[str, CallToolResult]:
    """Return the results that can be read, by call id; the others count as lost."""
    found = {}
    for call_id, native in results.items():
        if call_id in calls:
            try:
                found[call_id] = CallToolResult.model_validate_json(native)
            except ValidationError:  # written by another release
                continue
    return found


def _lost() -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=LOST)], is_error=True)


def _failed(name: str) -> Fault:
    shown = one_line(name, 100)
    why = "its rule in unfinished_calls is `fail`"
    return Fault(
        FaultType.UPSTREAM,
        f"the fleet was stopped while {shown} was called: whether it was done is unknown, and {why}; look at "
        "what it did, then send another message",
        data={"tool": shown},
    )


def _is_safe(agent: Any, name: str) -> bool:
    """Return whether the tool's server says that it only reads, or may be called twice."""
    servers = downstreams_of(agent)
    tool = servers.tools.get(name) if servers is not None else None
    notes = tool.tool.annotations if tool is not None else None
    return bool(notes is not None and (notes.read_only_hint or notes.idempotent_hint))
