"""Why no replay can say what a run would do now: one place for each reason."""

from collections.abc import Callable, Collection, Mapping

from pallas.client.own_fleet import needed
from pallas.config import Project
from pallas.model import RecordedRun, Recording
from pallas.model.discovery import IN_PROCESS
from pallas.model.step_view import view_of
from pallas.recordings.recorded_tools import RecordedTools

from .judged_runs import JudgedRun


def undecidable(run: JudgedRun, project: Project, affected: Collection[str]) -> str:
    """Why a run cannot be replayed at all, in words; empty if it can.

    What a handler does is not caught in a replay, so one that changed is not run; a program and a fleet
    elsewhere are not asked.
    """
    changed = {name for name in affected if name in project.agents}
    handlers = {name for name in changed if project.agents[name].kind == "handler"}
    for each in run.turns:
        for agent in dict.fromkeys(ran.agent for ran in each.recording.runs):
            config = project.agents.get(agent)
            if config is None:
                continue
            if agent in changed and config.kind not in IN_PROCESS:
                return (
                    f"what the {config.kind} {agent} answers now is not known: it is not asked for a verdict"
                )
            if handlers and config.kind == "handler":
                reached = sorted(handlers & {agent, *needed(project, agent).agents})
                if reached:
                    return f"what the handler {reached[0]} does now is not known: it is not run"
    return ""


def not_asked(recordings: Collection[Recording], project: Project, running: Collection[str]) -> str:
    """Why no model is asked what becomes of a run, in words; empty if that can be done.

    ``running`` are the agents that would run again.
    """
    if any(lacking(each, running) for each in recordings):
        return "the recording lacks parts of it"
    for name in sorted(running):
        config = project.agents.get(name)
        if config is None:
            continue
        if config.kind == "handler" or config.kind not in IN_PROCESS:
            return f"the {config.kind} {name}, which is above, would run again"
    return ""


def changed_server(unit: Recording, servers: Mapping[str, str], digest_of: Callable[[str], str]) -> str:
    """Which changed server a unit saw tools of, and why that cannot be decided; empty without one.

    ``digest_of`` is what a server is made of now: one that is made of the same as then is not changed.
    """
    if not servers:
        return ""
    names = [tool.name for tool in RecordedTools(unit).all]
    for server, why in servers.items():
        made_of = {run.version.servers.get(server, "") for run in unit.runs if run.version is not None}
        is_used = any(name.startswith(f"{server}__") for name in names)
        if is_used and made_of - {""} != {digest_of(server)}:
            return f"the server {server} changed; {why}"
    return ""


def lacking(unit: Recording, affected: Collection[str]) -> str:
    """What a unit lacks that its replay may have needed; empty if nothing is known to be missing.

    Of a run that is answered as a whole, such as one of a worker, no step is needed.
    """
    ids = [run.id for run in unit.runs if run.agent in affected]
    found = next((line for line in unit.missing if any(each in line for each in ids)), "")
    if found:
        return f"the recording lacks {found.partition(': ')[2] or found}"
    return "its conversation began before this run" if _goes_on(unit.first, unit) else ""


def _goes_on(run: RecordedRun, unit: Recording) -> bool:
    """Whether a run has a conversation behind it that its recording does not have."""
    first = next((each for each in run.steps if each.step.kind == "model"), None)
    if first is None or unit.history:
        return False
    return any(each.role in ("assistant", "model") for each in view_of(first.request, "").messages)
