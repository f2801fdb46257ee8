"""The servers of a fleet's agents compared with ``tools.lock``, and the acceptance of what they list now."""

import asyncio
import importlib
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pallas.model import Fault, FaultType, LockMode, ServerDetail, ServerLock
from pallas.safe_text import one_line
from pallas.toolbox.server_endpoint import ServerEndpoint

from .agent import FleetAgent

if TYPE_CHECKING:
    from pallas.tools_lock.surface import Surface
    from pallas.tools_lock.tool_gate import ToolGate

_NO_LOCK: Final = "there is no tools.lock; `pallas lock` writes one with all servers of the project"


class ToolLocks:
    """Compares servers with the lock of their project. Belongs to the fleet's event loop.

    ``otherwise`` is the mode where the project says none.
    """

    def __init__(self, otherwise: LockMode) -> None:
        self._otherwise: LockMode = otherwise
        self._writing = asyncio.Lock()

    async def look(
        self, agent: FleetAgent, server: str, endpoint: ServerEndpoint
    ) -> tuple[ServerDetail, Any]:
        """Return a downstream with its tools, compared, and its surface. Raises Fault; has no deadline."""
        live = await _live_surface().look_at(endpoint)
        seam = importlib.import_module("pallas.executors.fastagent.tools_seam")
        shown = live.tools[: seam.MAX_TOOLS]
        details = await asyncio.to_thread(seam.details_of, list(shown))
        more = len(live.tools) > len(shown)
        problem = f"it has more tools; only the first {len(shown)} are shown" if more else live.problem
        compared = await asyncio.to_thread(self._compared, agent, server, live.surface)
        readings = importlib.import_module("pallas.toolbox.resource_reading")
        found = ServerDetail(
            server,
            details,
            problem=problem,
            left_out=live.left_out,
            lock=compared,
            resources=readings.resource_details(list(live.resources)),
            subscribes=live.subscribes,
        )
        return found, live.surface

    async def with_findings(
        self, details: Collection[ServerDetail], surfaces: "dict[str, Surface]"
    ) -> tuple[ServerDetail, ...]:
        """Return the servers with what is suspicious in their texts, also beside one another."""
        from pallas.tools_lock.findings import findings_of, shown_name

        found = await asyncio.to_thread(findings_of, surfaces)
        return tuple(
            replace(
                each,
                lock=replace(
                    each.lock,
                    findings=tuple(one for one in found if one.server == shown_name(each.server)),
                ),
            )
            if each.lock is not None
            else each
            for each in details
        )

    async def refuse_held(self, agent: FleetAgent, server: str, tool: str, client: Any) -> None:
        """Raise Fault (CONFIG) for a tool that models do without."""
        gate = self._gate(agent)
        tools = await _live_surface().all_pages(client.list_tools, "tools", [])
        verdict = await asyncio.to_thread(gate.verdict, server, "tool", tools, is_whole=True)
        is_offered = any(each.name == tool for each in verdict.offered)
        if not is_offered and gate.is_holding(server):
            raise Fault(
                FaultType.CONFIG,
                f"{one_line(tool, 100)} of {one_line(server, 80)} is held, because it differs from "
                "tools.lock; accept it with `pallas lock`, or in the tools of the agent",
            )

    async def accept(self, agent: FleetAgent, server: str, endpoint: ServerEndpoint, digest: str) -> str:
        """Write what a server lists now into the lock, if that has this digest; return it in words.

        Raises Fault: CONFIG if there is no lock, it cannot be written, or the server lists something else.
        """
        from pallas.tools_lock.lock_file import LockedServer, read_lock, write_lock

        live = await _live_surface().look_at(endpoint)
        if live.problem:
            raise Fault(FaultType.CONFIG, f"{one_line(server, 80)} cannot be locked: {live.problem}")
        if live.surface.digest != digest:
            text = f"{one_line(server, 80)} now lists something else; look at it again and accept that"
            raise Fault(FaultType.CONFIG, text)
        root = agent.project.root

        def write() -> None:
            if (lock := read_lock(root)) is None:
                raise Fault(FaultType.CONFIG, _NO_LOCK)
            write_lock(root, lock.with_servers({server: LockedServer(live.surface)}))

        async with self._writing:
            # Not cut short by a caller that goes away: another write must not begin before it is over.
            await asyncio.shield(asyncio.to_thread(write))
        return f"{one_line(server, 80)} is accepted as it is now; commit tools.lock"

    def _gate(self, agent: FleetAgent) -> "ToolGate":
        from pallas.tools_lock.project_servers import gate_for, with_lock_rules

        return gate_for(with_lock_rules(agent.project, self._otherwise), agent.config)

    def _compared(self, agent: FleetAgent, server: str, surface: "Surface") -> ServerLock | None:
        """None for a server that is not compared, regardless of the lock."""
        from pallas.tools_lock.lock_check import compare_server
        from pallas.tools_lock.lock_file import read_lock

        gate = self._gate(agent)
        if gate.is_exempt(server):
            return None
        try:
            lock = read_lock(agent.project.root)
        except Fault as fault:
            return ServerLock("not locked", digest=surface.digest, mode=gate.mode, problem=fault.message)
        if lock is None:
            return ServerLock("not locked", digest=surface.digest, mode=gate.mode, problem=_NO_LOCK)
        return replace(compare_server(lock.servers.get(server), surface), mode=gate.mode)


def _live_surface() -> Any:
    """The module that asks servers: it imports the protocol's client, which the inspector did in a thread."""
    return importlib.import_module("pallas.tools_lock.live_surface")
