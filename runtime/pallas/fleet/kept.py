"""What a fleet keeps of its conversations, for whoever may see all of them: workbench and control API.

Who else may see what is decided by ``pallas.sessions.thread_access``; here nobody is asked.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pallas.model import (
    Fault,
    FaultType,
    FleetState,
    MessageRecord,
    Page,
    Params,
    Principal,
    TaskRecord,
    ThreadRecord,
    refusals,
)
from pallas.model.params import PER_CALL_KEYS
from pallas.model.safe_text import one_line
from pallas.sessions.thread_access import ADMIN

if TYPE_CHECKING:
    from pallas.sessions.thread_access import Threads
    from pallas.tasks import Tasks

    from .fleet import Fleet

EVERYTHING: Final = Principal(ADMIN)
"""Who runs the fleet sees everybody's threads."""
MAX_PAGE: Final = 200
MAX_TITLE: Final = 200
_NOTHING_KEPT: Final = (
    "this fleet keeps nothing: it was started without a database, and its conversations go with it; "
    "database_url: in agents.yaml or PALLAS_DATABASE_URL says where to keep them"
)


async def threads(fleet: "Fleet", agent: str, limit: int, cursor: str) -> Page[ThreadRecord]:
    """Threads of one agent or of all, the one that was used last first. Raises Fault."""
    return await _threads(fleet).list(EVERYTHING, agent=agent or None, limit=_bounded(limit), cursor=cursor)


async def thread(fleet: "Fleet", agent: str, which: str) -> ThreadRecord:
    """A thread of an agent, by its id or its caller's own handle. Raises Fault."""
    _threads(fleet)
    found = await fleet.ledger.threads.find(agent, which) if fleet.ledger is not None else None
    if found is None:
        raise refusals.not_found("there is no such thread (any more); it may have been deleted")
    return found


async def messages(
    fleet: "Fleet", which: str, limit: int, cursor: str, newest_first: bool
) -> Page[MessageRecord]:
    """Some rows of a thread, by its id. Raises Fault."""
    return await _threads(fleet).messages(
        which, EVERYTHING, limit=_bounded(limit), cursor=cursor, newest_first=newest_first
    )


async def rename(fleet: "Fleet", which: str, title: str) -> ThreadRecord:
    """Give a thread another title. Raises Fault."""
    return await _threads(fleet).rename(which, EVERYTHING, one_line(title, MAX_TITLE))


async def delete(fleet: "Fleet", which: str) -> None:
    """Delete a thread and all that was said in it. Raises Fault."""
    await _threads(fleet).delete(which, EVERYTHING)


async def tasks(fleet: "Fleet", agent: str, limit: int, cursor: str) -> Page[TaskRecord]:
    """Tasks of one agent or of all, the newest first. Raises Fault."""
    return await _tasks(fleet).list(EVERYTHING, agent=agent or None, limit=_bounded(limit), cursor=cursor)


async def task(fleet: "Fleet", which: str) -> TaskRecord:
    """A task with its answer. Raises Fault."""
    return await _tasks(fleet).find(which, EVERYTHING)


async def cancel_task(fleet: "Fleet", which: str) -> TaskRecord:
    """Ask for a task to be cancelled. Raises Fault."""
    return await _tasks(fleet).cancel(which, EVERYTHING)


async def save_params(fleet: "Fleet", agent: str, given: Mapping[str, Any]) -> str:
    """Keep parameters as the agent's own, laid over those it has (AG-13, AG-26). Raises Fault."""
    if fleet.catalog is None:
        raise Fault(
            FaultType.CONFIG,
            f"parameters cannot be saved in this fleet, which keeps nothing; write them under params: of "
            f"{one_line(agent, 80)} in agents.yaml",
        )
    params = Params.read(given, strict=False).without(PER_CALL_KEYS)
    if not params:
        raise Fault(
            FaultType.CONFIG,
            "there is nothing to save: no parameter is set here but the instruction's, which is never saved",
        )
    resource = await fleet.catalog.get("agent", agent)
    before = Params.read(resource.spec.get("defaultParams") or {}, strict=False)
    spec = {"defaultParams": params.over(before).to_json()}
    await fleet.catalog.update("agent", agent, spec, version=resource.version)
    return f"{', '.join(params.values)} saved: {agent} has them for every caller from now on."


def _tasks(fleet: "Fleet") -> "Tasks":
    if fleet.lasting.tasks is None:
        _threads(fleet)  # which says what is missing, where that is more than a place for tasks
        raise Fault(FaultType.CONFIG, _NOTHING_KEPT)
    return fleet.lasting.tasks


def _threads(fleet: "Fleet") -> "Threads":
    if fleet.threads is None and fleet.state is FleetState.STARTING:
        raise Fault(FaultType.TRANSPORT, "the fleet is starting; ask in a moment", retryable=True)
    if fleet.threads is None:
        raise Fault(FaultType.CONFIG, _NOTHING_KEPT)
    return fleet.threads


def _bounded(limit: int) -> int:
    return max(1, min(limit, MAX_PAGE))
