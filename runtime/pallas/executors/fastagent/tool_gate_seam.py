"""Puts the gate of the current turn before each call that fast-agent's agents make, and hides denied tools.

``tests/contract/test_tool_gate_seam.py`` fails when fast-agent calls its tools in another way.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from fast_agent.types import PromptMessageExtended, RequestParams
from mcp_types import CallToolResult, TextContent

from pallas.model.tool_rules import ToolHint, hints_of
from pallas.safe_text import one_line

from ..model_client.call_arguments import note_in
from ..tool_gate import CallGate
from .downstreams_seam import Downstreams, downstreams_of
from .readable_result import readable, takes_of
from .tool_allowlist import SEPARATOR

AGENT: Final = "agent:"
"""Before the name of an agent that is a tool, in rules."""


class TurnGate(NamedTuple):
    """The gate of a turn; ``labels`` are those of peers, by the names of their tools in lower case."""

    gate: CallGate
    labels: Mapping[str, tuple[str, str]]


class ToolIdentity(NamedTuple):
    """What a tool is to the rules: its names, its own last; its server, and what that says of it."""

    names: tuple[str, ...]
    server: str = ""
    hints: frozenset[ToolHint] | None = None


def identity_of(agent: Any, name: str, local: frozenset[str], labels: Mapping[str, Any]) -> ToolIdentity:
    """The tool that the agent calls by that name, which may lack its server or be in another case.

    ``local`` are the names of tools that are no server's. A name that several tools have is all of them.
    """
    if (peer := labels.get(name.casefold())) is not None:
        return ToolIdentity((f"{AGENT}{peer[0]}",))
    servers = downstreams_of(agent)
    known: Mapping[str, Any] = servers.tools if servers is not None else {}
    if servers is not None and name in known:
        return _listed(servers, known[name])
    if name in local:
        return ToolIdentity((name,))
    child = getattr(agent, "_resolve_child_agent", lambda name: None)(name)
    if child is not None:
        return ToolIdentity((f"{AGENT}{child.name}",))
    folded = name.casefold()
    in_other_case = next((each for key, each in known.items() if key.casefold() == folded), None)
    # fast-agent corrects the case of a whole name, unless it is a tool's own name.
    is_own = any(each.tool.name == name for each in known.values())
    if servers is not None and in_other_case is not None and not is_own:
        return _listed(servers, in_other_case)
    if servers is None or not servers.server_names:
        return ToolIdentity((name,))
    alike = [each for each in known.values() if each.tool.name.casefold() == folded]
    return _resolved(servers, name, alike)


def _listed(servers: Downstreams, tool: Any) -> ToolIdentity:
    server = servers.server_display_name(tool.server_name)
    own = f"{server}{SEPARATOR}{tool.tool.name}"
    return ToolIdentity((own,), server, hints_of(getattr(tool.tool, "annotations", None)))


def _resolved(servers: Downstreams, name: str, alike: Sequence[Any]) -> ToolIdentity:
    """What fast-agent calls by a name that is no whole one: perhaps a tool that its server does not list, and
    an unknown one at the first server. ``alike`` are the tools with that name of their own.
    """
    target = servers.resolve_tool_name(name)
    known = servers.tools.values()
    called = next(
        (
            each
            for each in known
            if (each.server_name, each.tool.name) == (target.server_name, target.local_name)
        ),
        None,
    )
    others = [_listed(servers, each).names[0] for each in alike]
    if called is not None:
        tool = _listed(servers, called)
        return tool._replace(names=tuple(dict.fromkeys((*filter(tool.names[0].__ne__, others), *tool.names))))
    if target.server_name is None:
        return ToolIdentity((*dict.fromkeys(others), name))
    server = servers.server_display_name(target.server_name)
    own = f"{server}{SEPARATOR}{target.local_name}"
    return ToolIdentity((*dict.fromkeys((*others, own)), name), server)


async def identity(agent: Any, name: str, labels: Mapping[str, Any]) -> ToolIdentity:
    """The tool that the agent calls by that name now."""
    return identity_of(agent, name, local_names(agent, await agent.list_tools()), labels)


def local_names(agent: Any, listed: Any) -> frozenset[str]:
    """The names of an agent's listed tools that are neither a server's nor another agent."""
    servers = downstreams_of(agent)
    known: Mapping[str, Any] = servers.tools if servers is not None else {}
    children = getattr(agent, "_child_agents", {})
    return frozenset(
        tool.name for tool in listed.tools if tool.name not in known and tool.name not in children
    )


class GatedAgent:
    """One agent of an instance, whose calls wait for the gate of the turn that ``current`` returns."""

    def __init__(self, agent: Any, *, own: bool, current: Callable[[], TurnGate | None]) -> None:
        self._agent = agent
        self._own = own
        self._current = current
        self._list_tools = agent.list_tools
        self._call_tool = getattr(agent, "call_tool", None)
        self._run_tools = getattr(agent, "run_tools", None)

    def install(self) -> None:
        """Replace the agent's methods by ones that ask the gate first."""
        self._agent.list_tools = self.list_tools
        if self._call_tool is not None:
            self._agent.call_tool = self.call_tool
        if self._run_tools is not None:
            self._agent.run_tools = self.run_tools

    async def list_tools(self, *args: Any, **options: Any) -> Any:
        """The tools without those of which every call is denied."""
        listed = await self._list_tools(*args, **options)
        turn = self._current()
        if turn is None or turn.gate.is_open:
            return listed
        local = local_names(self._agent, listed)
        shown = [tool for tool in listed.tools if self._shows(turn, tool.name, local)]
        return listed.model_copy(update={"tools": shown})

    def _shows(self, turn: TurnGate, name: str, local: frozenset[str]) -> bool:
        tool = identity_of(self._agent, name, local, self._labels(turn))
        return turn.gate.shows(tool.names[-1], server=tool.server, hints=tool.hints)

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        tool_use_id: str | None = None,
        **options: Any,
    ) -> Any:
        """Make a call, or return why it is not made."""
        refusal = await self._refusal(name, arguments, tool_use_id)
        if refusal:
            return await _refused(name, refusal, options.get("request_params"))
        assert self._call_tool is not None
        return await self._call_tool(name, arguments, tool_use_id, **options)

    async def run_tools(
        self, request: PromptMessageExtended, request_params: RequestParams | None = None
    ) -> Any:
        """Make the calls of a message; their results are what the model can read.

        Those that fast-agent would make without ``call_tool``, or call unknown, are asked about here.
        """
        assert self._run_tools is not None
        calls = dict(request.tool_calls or {})
        apart = await self._apart(calls)
        if not apart:
            return self._readable(await self._run_tools(request, request_params=request_params))
        refusals = dict(
            zip(
                apart,
                await asyncio.gather(
                    *(
                        self._refusal(calls[each].params.name, calls[each].params.arguments, each)
                        for each in apart
                    )
                ),
                strict=True,
            )
        )
        left = {each: call for each, call in calls.items() if not refusals.get(each)}
        results: dict[str, Any] = {}
        answered = PromptMessageExtended(role="user", content=[], tool_results={})
        if left:
            rest = request.model_copy(update={"tool_calls": left})
            answered = self._readable(await self._run_tools(rest, request_params=request_params))
            results |= answered.tool_results or {}
        for each, refusal in refusals.items():
            if refusal:
                results[each] = await _refused(calls[each].params.name, refusal, request_params)
        ordered = {each: results[each] for each in calls if each in results}
        return answered.model_copy(update={"tool_results": ordered})

    def _readable(self, answered: PromptMessageExtended) -> PromptMessageExtended:
        takes = takes_of(self._agent)
        results = {each: readable(result, takes) for each, result in (answered.tool_results or {}).items()}
        return answered.model_copy(update={"tool_results": results}) if results else answered

    async def _apart(self, calls: Mapping[str, Any]) -> list[str]:
        """The calls of agents of the same definition, of tools that the model does not see, and those whose
        arguments were not whole."""
        turn = self._current()
        if turn is None:
            return list(calls)
        found = [each for each, call in calls.items() if note_in(call.params.arguments)]
        if turn.gate.is_open or len(found) == len(calls):
            return found
        local = local_names(self._agent, await self._list_tools())
        for each, call in calls.items():
            if each in found:
                continue
            name = call.params.name
            tool = identity_of(self._agent, name, local, self._labels(turn))
            is_child = tool.names[-1].startswith(AGENT) and name.casefold() not in self._labels(turn)
            if is_child or not turn.gate.shows(tool.names[-1], server=tool.server, hints=tool.hints):
                found.append(each)
        return found

    async def _refusal(self, name: str, arguments: Mapping[str, Any] | None, call_id: str | None) -> str:
        turn = self._current()
        if turn is None:  # what is left of a turn that is over
            return f"{one_line(name, 100)} was not called: its run is over."
        if note := note_in(arguments):
            return f"{one_line(name, 100)} was not called: {one_line(note, 600)}."
        if turn.gate.is_open:
            return ""
        local = local_names(self._agent, await self._list_tools())
        tool = identity_of(self._agent, name, local, self._labels(turn))
        servers = downstreams_of(self._agent)
        if servers is not None and tool.server and (why := servers.filter_refusal(name)):
            return why  # nobody is asked about a call that is not made in any case
        # The ids of calls of sub-agents are those of other conversations.
        whole = (call_id or "") if self._own else f"{self._agent.name}/{call_id or ''}"
        return await turn.gate.refusal(tool.names, arguments, whole, server=tool.server, hints=tool.hints)

    def _labels(self, turn: TurnGate) -> Mapping[str, tuple[str, str]]:
        return turn.labels if self._own else {}


async def _refused(name: str, text: str, request_params: RequestParams | None) -> CallToolResult:
    """The result of a call that was not made, reported to who follows the run."""
    handler = request_params.tool_execution_handler if request_params is not None else None
    if handler is not None:
        server, separator, tool = name.partition(SEPARATOR)
        await handler.on_tool_permission_denied(tool if separator else name, server, "")
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
