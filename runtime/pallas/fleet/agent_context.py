"""What an agent's instruction, tools and conversation take of its model's window."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pallas.config import AgentConfig, Capabilities
from pallas.executors import Executor, ExecutorInfo
from pallas.executors.fastagent.peer_tools import names_for
from pallas.model import ContextBill, ContextChange, ToolDetail
from pallas.model.context_bill import ContextKind, bill_of, context_changes
from pallas.telemetry.context_meter import ContextMeter, MeasuredRequest
from pallas.telemetry.part_size import NO_SIZE, PartSize, size_of_text, size_of_tool
from pallas.telemetry.token_ratios import TokenRatio

from .reload.agent_version import AgentVersion

_SEPARATOR: Final = "__"
"""Between a server and its tool in the name that a model sees."""

type _Sizes = tuple[tuple[ContextKind, str, PartSize], ...]


def window_of(config: AgentConfig) -> int:
    """Tokens that its model takes in at once, as they are declared; 0 for one without a model of ours."""
    if config.kind != "llm":
        return 0
    return (config.model_capabilities or Capabilities()).context_window


class AgentContext:
    """The context bill of one agent. May be read in any thread."""

    def __init__(self, name: str, meter: ContextMeter) -> None:
        self._name = name
        self._meter = meter
        self._sizes: tuple[Executor, _Sizes] | None = None
        self._made: tuple[object, ExecutorInfo, ContextBill] | None = None

    def bill(self, executor: Executor | None, config: AgentConfig, version: int) -> ContextBill | None:
        """The bill of the last request of that version, else an estimate; None if it sends nothing known."""
        if executor is None:
            return None
        info, last = executor.info, self._meter.last(self._name)
        measured = last if last is not None and last.version == version else None
        ratio = self._meter.ratios.ratio(info.model)
        source: object = measured or ratio
        if self._made is None or self._made[0] is not source or self._made[1] is not info:
            window = info.window or window_of(config)
            if measured is not None:
                made = _measured(measured, info.servers, config.peers, window)
            else:
                made = _estimated(self._sizes_of(executor), ratio, info, window)
            self._made = source, info, made
        made = self._made[2]
        return made if made.parts else None

    def changes(self, before: AgentVersion, after: AgentVersion) -> tuple[ContextChange, ...]:
        """What instruction and tools of a version take more or less than those of another, estimated.

        Call it in the fleet's event loop.
        """
        self._meter.settle()
        ratio = self._meter.ratios.ratio(after.executor.info.model)
        infos = before.executor.info, after.executor.info
        unknown = {each.server for info in infos for each in info.tools if each.problem}
        old, new = (
            bill_of(
                (kind, name, ratio.tokens(size))
                for kind, name, size in _sizes(info)
                if kind != "tools" or name not in unknown
            )
            for info in infos
        )
        return context_changes(old, new)

    def _sizes_of(self, executor: Executor) -> _Sizes:
        if self._sizes is None or self._sizes[0] is not executor:
            self._sizes = executor, _sizes(executor.info)
        return self._sizes[1]


def _measured(
    last: MeasuredRequest, servers: Sequence[str], peers: Sequence[str], window: int
) -> ContextBill:
    agents = {name: peer for peer, name in names_for(peers, ()).items()}
    parts: list[tuple[ContextKind, str, float]] = [("instruction", "", last.instruction)]
    parts += [(*_owner(name, servers, agents), tokens) for name, tokens in last.tools.items()]
    parts += [("history", "", last.history), ("images", "", last.images), ("other", "", last.other)]
    return bill_of(parts, total=last.total, window=window, model=last.model)


def _estimated(sizes: _Sizes, ratio: TokenRatio, info: ExecutorInfo, window: int) -> ContextBill:
    parts = ((kind, name, ratio.tokens(size)) for kind, name, size in sizes)
    return bill_of(parts, window=window, model=info.model, is_estimated=True)


def _sizes(info: ExecutorInfo) -> _Sizes:
    found: list[tuple[ContextKind, str, PartSize]] = [("instruction", "", size_of_text(info.instruction))]
    for server in info.tools:
        sizes = (_size_of(f"{server.server}{_SEPARATOR}{tool.name}", tool) for tool in server.tools)
        found.append(("tools", server.server, sum(sizes, NO_SIZE)))
    return tuple(found)


def _size_of(name: str, tool: ToolDetail) -> PartSize:
    try:
        schema: Any = json.loads(tool.input_schema)
    except (ValueError, RecursionError):
        schema = tool.input_schema
    return size_of_tool({"name": name, "description": tool.description, "parameters": schema})


def _owner(name: str, servers: Iterable[str], agents: Mapping[str, str]) -> tuple[ContextKind, str]:
    """Whose tool has that name: a server's, another agent, or empty for the agent's own."""
    found = max((each for each in servers if name.startswith(f"{each}{_SEPARATOR}")), key=len, default="")
    if not found and name in agents:
        return "agent", agents[name]
    return "tools", found or (name.partition(_SEPARATOR)[0] if _SEPARATOR in name else "")
