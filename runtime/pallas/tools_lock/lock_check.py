"""Asks the servers of a project what they list, and compares it with the lock."""

import asyncio
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pallas.config import Project
from pallas.model import Fault, FaultType
from pallas.model.tool_lock import ServerLock
from pallas.safe_text import one_line
from pallas.toolbox.server_endpoint import ServerEndpoint, downstream_endpoint

from .findings import findings_of, shown_name
from .lock_file import LockedServer, ToolsLock
from .project_servers import own_agents
from .surface import Surface
from .surface_changes import surface_changes

LOOK_TIMEOUT: Final = 60.0
"""Seconds for one server: its program may have to be downloaded first."""
_AT_A_TIME: Final = 6
_REFUSED: Final = re.compile(r"HTTP 40[13]\b")


@dataclass(frozen=True, slots=True)
class CheckedServer:
    """A server of the project: as it is now, and compared with the lock.

    ``found`` is None if it could not be looked at (``compared.problem`` says why) or no longer exists.
    """

    name: str
    compared: ServerLock
    found: LockedServer | None = None
    is_gone: bool = False
    """Whether the lock has it and the project has not."""
    left_out: tuple[str, ...] = ()
    """What it lists and cannot be used, with reasons; neither the lock nor models have it."""


def compare_server(locked: LockedServer | None, now: Surface) -> ServerLock:
    """Compare what a server says with what the lock has of it, None for nothing."""
    changes = surface_changes(locked.surface if locked is not None else Surface(), now)
    if locked is None:
        return ServerLock("not locked", changes, digest=now.digest)
    if locked.not_lockable:  # it can be locked now
        return ServerLock("not locked", changes, digest=now.digest)
    return ServerLock("changed" if changes else "same", changes, digest=now.digest)


async def check_servers(
    project: Project, lock: ToolsLock, names: Collection[str] = (), bearer: str | None = None
) -> tuple[CheckedServer, ...]:
    """Look at the servers of the project, at these only if ``names`` has some, and compare each.

    Agents of the same fleet are left out. ``bearer`` is sent to servers that take a caller's. Raises Fault
    (CONFIG) for a name that the project does not have; a server that cannot be reached has a ``problem``.
    """
    own = own_agents(project)
    if unknown := sorted({*names} - project.downstreams.keys()):
        known = ", ".join(sorted(project.downstreams.keys() - {*own})) or "none"
        raise Fault(
            FaultType.CONFIG, f"no server {one_line(unknown[0], 80)} under mcp.servers; there are: {known}"
        )
    wanted = sorted(name for name in names or project.downstreams if name not in own)
    free = asyncio.Semaphore(_AT_A_TIME)
    found = await asyncio.gather(*(_look(project, name, lock, bearer, free) for name in wanted))
    surfaces = {
        each.name: each.found.surface
        for each in found
        if each.found is not None and not each.found.not_lockable
    }
    checked = [*await asyncio.to_thread(_with_findings, found, surfaces)]
    gone = () if names else sorted(lock.servers.keys() - project.downstreams.keys())
    checked += [CheckedServer(name, ServerLock("changed"), is_gone=True) for name in gone]
    return tuple(checked)


def relocked(lock: ToolsLock, checked: Collection[CheckedServer]) -> ToolsLock:
    """Return the lock with these servers as they are now; one that could not be looked at stays as it was."""
    return lock.with_servers(
        {each.name: each.found for each in checked if each.found is not None or each.is_gone}
    )


async def _look(
    project: Project, name: str, lock: ToolsLock, bearer: str | None, free: asyncio.Semaphore
) -> CheckedServer:
    # The modules of the protocol take a moment to import.
    from .live_surface import look_at

    locked = lock.servers.get(name)
    endpoint = downstream_endpoint(project, name)
    assert endpoint is not None, name
    if problem := endpoint.config.not_configured:
        return _unknown(name, locked, problem)
    try:
        async with free, asyncio.timeout(LOOK_TIMEOUT):
            live = await look_at(endpoint, bearer)
    except TimeoutError:
        return _unknown(name, locked, f"it did not list its tools within {LOOK_TIMEOUT:.0f} s")
    except Fault as fault:
        if _needs_bearer(endpoint, bearer, fault):
            return _not_lockable(name, locked)
        return _unknown(name, locked, one_line(fault.message, 400))
    if live.problem:
        return replace(_unknown(name, locked, live.problem), left_out=live.left_out)
    compared = compare_server(locked, live.surface)
    return CheckedServer(name, compared, LockedServer(live.surface), left_out=live.left_out)


def _needs_bearer(endpoint: ServerEndpoint, bearer: str | None, fault: Fault) -> bool:
    takes_bearer = endpoint.config.forward_inbound_auth and not endpoint.configured
    return takes_bearer and not bearer and _REFUSED.match(fault.message) is not None


def _not_lockable(name: str, locked: LockedServer | None) -> CheckedServer:
    noted = LockedServer(not_lockable="it lists its tools only for a caller's bearer")
    if locked == noted:
        return CheckedServer(name, ServerLock("not lockable"), noted)
    if locked is not None and not locked.not_lockable:  # locked with a bearer: that stays
        return _unknown(name, locked, f"{noted.not_lockable}; give one with --bearer-env")
    return CheckedServer(name, ServerLock("not locked", problem=noted.not_lockable), noted)


def _unknown(name: str, locked: LockedServer | None, problem: str) -> CheckedServer:
    return CheckedServer(name, ServerLock("same" if locked else "not locked", problem=problem))


def _with_findings(
    checked: Collection[CheckedServer], surfaces: Mapping[str, Surface]
) -> list[CheckedServer]:
    found = findings_of(surfaces)
    return [
        replace(
            each,
            compared=replace(
                each.compared,
                findings=tuple(finding for finding in found if finding.server == shown_name(each.name)),
            ),
        )
        for each in checked
    ]
