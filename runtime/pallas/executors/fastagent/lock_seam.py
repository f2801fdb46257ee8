"""Compares with the lock what fast-agent gets from servers, before any of it reaches a model.

Every request to a server goes through ``_execute_on_server``: there lists are compared and filtered, so what
is held is in none of fast-agent's own lists, also after ``tools/list_changed``.
``tests/contract/test_lock_seam.py`` fails when that changes.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from fast_agent.mcp.mcp_aggregator import MCPAggregator

from pallas.config import AgentConfig, Project
from pallas.executors.replay.replay import current_replay
from pallas.mcp_client.library_hooks import Hook
from pallas.model import Fault, FaultType
from pallas.model.tool_lock import LockedKind
from pallas.safe_text import one_line
from pallas.tools_lock.lock_file import LOCK_FILE
from pallas.tools_lock.project_servers import gate_for
from pallas.tools_lock.tool_gate import ToolGate

from .aggregator_seam import EXECUTE, EXECUTE_PARAMETERS, attached, connection_of

# The field of a result that has the list, and what is in it, by the client's method.
_LISTS: Final[Mapping[str, tuple[str, LockedKind]]] = {
    "list_tools": ("tools", "tool"),
    "list_prompts": ("prompts", "prompt"),
    "list_resources": ("resources", "resource"),
    "list_resource_templates": ("resource_templates", "resource template"),
}
_USES: Final[Mapping[str, tuple[str, LockedKind]]] = {
    "call_tool": ("name", "tool"),
    "get_prompt": ("name", "prompt"),
    "read_resource": ("uri", "resource"),
}
# Keyed by the registry of an agent's servers, which the copies of its instances share.
_gates: Final[WeakKeyDictionary[Any, ToolGate]] = WeakKeyDictionary()


def make_gate(project: Project, config: AgentConfig) -> ToolGate | None:
    """Return what compares the servers of an agent with the lock; None in a replay.

    What a replay answers with was compared when it was recorded.
    """
    return gate_for(project, config) if current_replay() is None else None


def guard(aggregator: Any, gate: ToolGate) -> None:
    """Compare what the servers of this aggregator list, and of its copies, by this gate."""
    _gates[aggregator.context.server_registry] = gate


def gate_of(aggregator: Any) -> ToolGate | None:
    """Return the gate of an aggregator; None if nothing is compared."""
    registry = getattr(getattr(aggregator, "context", None), "server_registry", None)
    return _gates.get(registry) if registry is not None else None


async def list_again(aggregator: Any, seconds: float) -> None:
    """List the tools of all connected servers once more, within ``seconds``; never raises.

    What a server listed before was compared with another lock.
    """
    names = list(attached(aggregator))
    tasks = [asyncio.create_task(_list_one(aggregator, name), name=f"list {name}") for name in names]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
    finally:
        for task in tasks:
            task.cancel()


async def _list_one(aggregator: Any, name: str) -> None:
    await aggregator._handle_tool_list_changed(name)  # logs what goes wrong
    prompts = await aggregator._fetch_server_prompts(name, cache_mode="refresh")
    async with aggregator._prompt_cache_lock:
        aggregator._prompt_cache[name] = prompts


def _compared(original: Any) -> Any:
    async def execute_on_server(
        self: Any,
        server_name: str,
        operation_type: str,
        operation_name: str,
        method_name: str,
        method_args: Any = None,
        error_factory: Any = None,
        progress_callback: Any = None,
    ) -> Any:
        gate = gate_of(self)
        if gate is not None and (why := _refusal(self, gate, server_name, method_name, method_args or {})):
            if error_factory is None:
                raise Fault(FaultType.CONFIG, why)
            return error_factory(why)
        result = await original(
            self,
            server_name,
            operation_type,
            operation_name,
            method_name,
            method_args,
            error_factory,
            progress_callback,
        )
        if gate is None or method_name not in _LISTS:
            return result
        return await _filtered(self, gate, server_name, method_name, result)

    return execute_on_server


def _refusal(aggregator: Any, gate: ToolGate, server: str, method: str, arguments: Mapping[str, Any]) -> str:
    """Why something may not be used; empty if it may. A model knows names of before, and guesses others."""
    key, what = _USES.get(method, ("", "tool"))
    if not key:
        return ""
    name = str(arguments.get(key, ""))
    if not gate.holds(server, what, name) and not (
        what == "tool" and gate.is_holding(server) and not _is_offered(aggregator, server, name)
    ):
        return ""
    named = f"the {what} {one_line(name, 120)} of {one_line(server, 80)}"
    return f"{named} is held, because it is not as {LOCK_FILE} has it"


def _is_offered(aggregator: Any, server: str, tool: str) -> bool:
    return any(each.tool.name == tool for each in aggregator._server_to_tool_map.get(server, ()))


async def _filtered(aggregator: Any, gate: ToolGate, server: str, method: str, result: Any) -> Any:
    key, what = _LISTS[method]
    items = getattr(result, key, None)
    if items is None:  # an error that the caller has made of it
        return result
    is_whole = not getattr(result, "next_cursor", None)
    verdict = await asyncio.to_thread(gate.verdict, server, what, items, is_whole=is_whole)
    gate.note(server, what, verdict)
    if what == "tool":
        connection = connection_of(aggregator, server)
        if connection is not None and connection.server_instructions_enabled:
            text = connection.server_instructions
            gate.note(server, "instructions", await asyncio.to_thread(gate.instructions, server, text))
    return result.model_copy(update={key: list(verdict.offered)})


def _without_held(original: Any) -> Any:
    async def get_server_instructions(self: Any) -> Any:
        found = await original(self)
        gate = gate_of(self)
        if gate is None:
            return found
        names = {self.server_display_name(name): name for name in self.server_names}
        kept = {}
        for shown, (text, tools) in found.items():
            server = names.get(shown, shown)
            if not text:  # there are none, or the configuration leaves them out
                kept[shown] = (text, tools)
                continue
            verdict = await asyncio.to_thread(gate.instructions, server, text)
            gate.note(server, "instructions", verdict)
            kept[shown] = (text if verdict.offered else None, tools)
        return kept

    return get_server_instructions


HOOKS: Final = (
    Hook(
        "lock.lists",
        MCPAggregator,
        EXECUTE,
        EXECUTE_PARAMETERS,
        _compared,
    ),
    Hook("lock.instructions", MCPAggregator, "get_server_instructions", ("self",), _without_held),
)
