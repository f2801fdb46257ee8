"""Restricts a run's tools: the model does not see the others, and calls to them are refused (AG-12)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from fast_agent.types import PromptMessageExtended, RequestParams
from mcp_types import CallToolResult, TextContent

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

# fast-agent's separator between a server and its tool.
SEPARATOR: Final = "__"
_ALL: Final = "*"
# Names that a message lists.
_SHOWN: Final = 12


def find(pattern: str, names: Sequence[str], key: str) -> tuple[str, ...]:
    """Return the tools that ``pattern`` names: ``server__tool``, ``server__*``, ``*``, or a tool's own name
    only.

    Empty if there is none. Raises Fault (PROTOCOL) for a name that tools of several servers have; ``key``
    is the parameter to name in it.
    """
    if pattern in names:
        return (pattern,)
    spelled = pattern.replace("/", SEPARATOR, 1)
    if spelled.endswith(_ALL):
        return tuple(name for name in names if name.startswith(spelled[: -len(_ALL)]))
    if spelled in names:
        return (spelled,)
    found = tuple(name for name in names if name.endswith(f"{SEPARATOR}{pattern}"))
    if len(found) > 1:
        raise Fault(
            FaultType.PROTOCOL,
            f"{key}: {one_line(pattern, 60)} is a tool of several servers; write {_listed(found, ' or ')}",
            data={"key": key},
        )
    return found


def find_one(pattern: str, names: Sequence[str], key: str) -> str:
    """Return the one tool that ``pattern`` names. Raises Fault (PROTOCOL) if there is none, or several."""
    found = find(pattern, names, key) if not pattern.endswith(_ALL) else ()
    if not found:
        have = f"there are {_listed(names)}" if names else "none is there"
        raise Fault(FaultType.PROTOCOL, f"{key}: no tool {one_line(pattern, 80)}; {have}", data={"key": key})
    return found[0]


class Allowed:
    """The tools that one run may use."""

    def __init__(self, patterns: Iterable[str], names: Sequence[str]) -> None:
        found = [(each, find(each, names, "tools_allowlist")) for each in patterns]
        self.names = frozenset(name for _, those in found for name in those)
        self.missing = tuple(each for each, those in found if not those)
        # fast-agent ignores case when it looks up a tool.
        self._folded = frozenset(name.casefold() for name in self.names)
        self._patterns = frozenset(each for each, _ in found)

    def allows(self, name: str) -> bool:
        """Return whether a tool may be called by this name."""
        return name.casefold() in self._folded

    def hides(self, name: str) -> bool:
        """Return whether a tool of the provider is hidden: it is in no list of the agent's."""
        return name not in self._patterns

    @contextmanager
    def enforced(self, agent: Any) -> Iterator[None]:
        """Refuse this agent's calls of other tools before they reach a server, until the block ends."""
        before = vars(agent).get("run_tools")
        run_tools = agent.run_tools

        async def run(
            request: PromptMessageExtended, request_params: RequestParams | None = None
        ) -> PromptMessageExtended:
            calls = request.tool_calls or {}
            allowed = {each: call for each, call in calls.items() if self.allows(call.params.name)}
            if len(allowed) == len(calls):
                answered: PromptMessageExtended = await run_tools(request, request_params=request_params)
                return answered
            answered = PromptMessageExtended(role="user", content=[], tool_results={})
            if allowed:
                rest = request.model_copy(update={"tool_calls": allowed})
                answered = await run_tools(rest, request_params=request_params)
            results = dict(answered.tool_results or {})
            for each, call in calls.items():
                if each not in allowed:
                    results[each] = await self._refuse(call, request_params)
            # In the order of the calls.
            ordered = {each: results[each] for each in calls if each in results}
            return answered.model_copy(update={"tool_results": ordered})

        agent.run_tools = run
        try:
            yield
        finally:
            if before is None:
                del agent.run_tools
            else:
                agent.run_tools = before

    async def _refuse(self, call: Any, request_params: RequestParams | None) -> CallToolResult:
        name = str(call.params.name)
        handler = request_params.tool_execution_handler if request_params is not None else None
        if handler is not None:
            server, separator, tool = name.partition(SEPARATOR)
            await handler.on_tool_permission_denied(tool if separator else name, server, "")
        there = f"allowed: {_listed(sorted(self.names))}" if self.names else "no tool is allowed"
        text = f"{name} was not called: it is not allowed in this turn (tools_allowlist); {there}."
        return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _listed(names: Sequence[str], between: str = ", ") -> str:
    more = f"{between}{len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return between.join(one_line(name, 80) for name in names[:_SHOWN]) + more
