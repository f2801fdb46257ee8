"""Adds the peers of an agent to the tools of one warm instance, by fast-agent's own ``add_tool``.

``tests/contract/test_peer_tools_seam.py`` fails when that changes.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from fastmcp.tools import FunctionTool, ToolResult
from mcp_types import TextContent

from pallas.model import Fault, FaultType, TraceContext
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import current_call, current_run

from ..base import Emit, ExecutorTurn
from .call_meta import named_call
from .peer_tools import PeerCalls, PeerTool, fault_text, is_renamed, names_for, text_for

log = logging.getLogger(__name__)

# An agent that fast-agent derives from this one does not get its peers: none were configured for it.
_NOT_INHERITED: Final = {"fast_agent": {"inherit_to_clone": False}}


class _Tool(FunctionTool):
    """A tool that passes its arguments on unchecked: the peer validates them."""

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Return the peer's answer, or the text of its Fault as an error."""
        result: ToolResult = await self.fn(arguments)
        return result


@dataclass(frozen=True, slots=True)
class _Serving:
    turn: ExecutorTurn
    emit: Emit


def check(agent: Any, name: str, where: str) -> None:
    """Raise Fault (CONFIG) if an agent with peers is of a kind that has no tools."""
    if not hasattr(agent, "add_tool"):
        raise Fault(
            FaultType.CONFIG,
            f"{where}: {name} has peers, which are tools of a model, and a {type(agent).__name__} uses none; "
            "define it with @fast.agent, or leave its peers out",
        )


class PeerTools:
    """The peers of one instance's agent. Serves one run at a time, like the instance.

    ``labels`` maps the tool's name in lower case to the peer and the class it accepts.
    """

    def __init__(self, agent: Any, peers: Sequence[str], calls: PeerCalls, reported: set[str]) -> None:
        self._agent = agent
        self._peers = tuple(dict.fromkeys(peers))
        self._calls = calls
        self._reported = reported
        self._shown: tuple[PeerTool, ...] = ()
        self._names: dict[str, str] = {}
        self._serving: _Serving | None = None
        self.labels: dict[str, tuple[str, str]] = {}

    async def refresh(self) -> None:
        """Show the model the peers that are available now; does nothing if they are the same."""
        tools = self._calls.tools()
        if tools is self._shown:
            return
        for tool in self._shown:
            self._agent.remove_tool(self._names[tool.peer])
        self._shown, self.labels = (), {}
        taken = [tool.name for tool in (await self._agent.list_tools()).tools]
        self._names = names_for((*self._peers, *(tool.peer for tool in tools)), taken)
        for tool in tools:
            name = self._names[tool.peer]
            self._agent.add_tool(self._made(tool, name), replace=False)
            self.labels[name.casefold()] = (tool.peer, tool.says)
            self._report(tool.peer, name)
        self._shown = tools

    def spelled(self, turn: ExecutorTurn) -> ExecutorTurn:
        """Return the turn with peers in its ``tools_allowlist`` replaced by their tools' names, if these
        differ."""
        listed = turn.params.get("tools_allowlist")
        if not listed or all(self._names.get(each, each) == each for each in listed):
            return turn
        names = [self._names.get(each, each) for each in listed]
        values = {**turn.params.values, "tools_allowlist": names}
        return replace(turn, params=replace(turn.params, values=values))

    @contextmanager
    def serving(self, turn: ExecutorTurn, emit: Emit) -> Iterator[None]:
        """Make calls for this turn until the block ends; outside of it calls are refused."""
        self._serving = _Serving(turn, emit)
        try:
            yield
        finally:
            self._serving = None

    def _made(self, tool: PeerTool, name: str) -> FunctionTool:
        async def call(arguments: dict[str, Any]) -> ToolResult:
            return await self._call(tool, arguments)

        return _Tool(
            fn=call,
            name=name,
            description=tool.description,
            parameters=dict(tool.schema),
            meta=dict(_NOT_INHERITED),
        )

    async def _call(self, tool: PeerTool, arguments: dict[str, Any]) -> ToolResult:
        serving = self._serving
        if serving is None:
            return _result("Error: there is no run for which another agent could be asked.", failed=True)
        text = text_for(tool, arguments)
        if text is None:
            return _result("Error: message is missing; give what you want of it as text.", failed=True)
        try:
            answer = await self._calls.ask(
                tool.peer, text, serving.turn, _span(), serving.emit, call_id=named_call()
            )
        except Fault as fault:
            return _result(fault_text(fault), failed=True)
        return _result(answer or f"({tool.peer} is done, and answered nothing.)")

    def _report(self, peer: str, name: str) -> None:
        if not is_renamed(peer, name) or name in self._reported:
            return
        self._reported.add(name)
        log.warning(
            "%s: its peer %s is the tool %s, since it has another tool of that name; rename one of them",
            self._agent.name,
            peer,
            one_line(name, 80),
            extra={"agent": self._agent.name},
        )


def _span() -> TraceContext | None:
    """Return the span of the call that is made in this context."""
    run, span = current_run(), current_call()
    return replace(run.context, span_id=span) if run is not None and span else None


def _result(text: str, *, failed: bool = False) -> ToolResult:
    return ToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
