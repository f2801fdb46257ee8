"""Which servers of a recording are made of something else now, and what became of what they offered."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pallas.config import Project
from pallas.executors.replay.replay import ReplayPlan
from pallas.model import Recording
from pallas.model.server_offer import ServerOffer
from pallas.model.tool_lock import LockChange
from pallas.safe_text import one_line
from pallas.tools_lock.surface_changes import items_changes

from .asked_servers import AskedServer
from .reload.server_digest import server_digest


def changed_servers(project: Project, plan: ReplayPlan) -> tuple[str, ...]:
    """The recorded servers whose entry or files are others than in each run that had them. Blocks.

    Live servers are left out, and those of which ``tools.lock`` says what they offer.
    """
    recorded: dict[str, set[str]] = {}
    for run in plan.recording.runs:
        made_of = run.version.servers if run.version is not None else {}
        for name in run.offers:
            if name in made_of and not plan.is_live(name) and name not in plan.offered:
                recorded.setdefault(name, set()).add(made_of[name])
    return tuple(name for name, were in recorded.items() if server_digest(project, name) not in were)


def offer_changes(recording: Recording, asked: Mapping[str, AskedServer]) -> Iterator[str]:
    """What the asked servers do not offer as they did in this recording, one clause each."""
    told: dict[str, None] = {}
    for run in recording.runs:
        for server, name in run.offers.items():
            now = asked[server].offer if server in asked else None
            if now is not None and (was := recording.offers.get(name)) is not None:
                told |= dict.fromkeys(_changes(one_line(server, 80), was, now))
    yield from told


def unknown_offers(recording: Recording, asked: Mapping[str, AskedServer]) -> Iterator[str]:
    """The servers of a recording that could not be asked, one clause each."""
    for server in dict.fromkeys(name for run in recording.runs for name in run.offers):
        if server in asked and asked[server].offer is None:
            why = asked[server].problem
            yield f"{one_line(server, 80)} was changed and cannot be asked what it offers now: {why}"


def _changes(server: str, was: ServerOffer, now: ServerOffer) -> Iterator[str]:
    for change in items_changes("tool", _by_name(was.tools), _by_name(now.tools)):
        yield _clause(server, change)
    if was.instructions != now.instructions:
        yield f"{server} has other instructions"


def _clause(server: str, change: LockChange) -> str:
    tool = f"{server}__{change.name}"
    match change.kind:
        case "removed":
            return f"{server} offers no {tool} any more"
        case "renamed":
            return f"{server} offers no {server}__{change.old_name} any more: it is {tool} now"
        case "added":
            return f"{server} offers {tool} too"
        case _:
            return f"{server} offers another {tool} ({', '.join(change.details)})"


def _by_name(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(each["name"]): {key: value for key, value in each.items() if key != "name"} for each in tools}
