"""Import the agents' code in a process of its own, as the fleet would, and report what fails."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pallas.config import AgentConfig, Mistake, Project, Where, export_env
from pallas.config.agent_code import choice_of, server_mistakes, server_problem, servers_of
from pallas.config.cards import read_cards
from pallas.config.code import code_file
from pallas.config.files import shown
from pallas.config.notes import Notes

DEADLINE: Final = 60.0
_MAX_REPORT: Final = 64 * 1024
_PLACE: Final = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)
_KEY: Final = re.compile(r"(?P<key>agents\.[^:]+): (?P<problem>.*)", re.DOTALL)


def probe(project: Project, deadline: float = DEADLINE) -> tuple[Mistake, ...]:
    """Return the mistakes in the agents' code, in the order of the agents; empty when they all import.

    Each import has ``deadline`` seconds. User code runs in a child process, which has ended on return.
    """
    environ = dict(os.environ)
    export_env(project.root, environ)
    from pallas.fleet.child_processes import ending_children  # other checks import nothing of a fleet

    with ending_children():
        reports = asyncio.run(_import_all(project, environ, deadline))
    return tuple(
        mistake for agent in _with_code(project) for mistake in _mistakes(project, agent, reports[agent.name])
    )


def _with_code(project: Project) -> list[AgentConfig]:
    """Return the agents that are Python code or have a card; the others have nothing to import."""
    return [agent for agent in project.agents.values() if agent.kind in ("llm", "handler")]


async def _import_all(
    project: Project, environ: dict[str, str], deadline: float
) -> dict[str, dict[str, Any]]:
    """Return the reports by agent. One process imports them all, a new one those behind one that ends it."""
    names = [each.name for each in _with_code(project)]
    reports: dict[str, dict[str, Any]] = {}
    while missing := names[len(reports) :]:
        async for report in _reports(project.root, missing, environ, deadline):
            reports[names[len(reports)]] = report
    return reports


async def _reports(
    root: Path, names: Sequence[str], environ: dict[str, str], deadline: float
) -> AsyncIterator[dict[str, Any]]:
    """Yield reports on agents in the order of ``names``, up to the first whose code ends the process."""
    # -P: the project's files must not shadow the standard library while the probe starts.
    command = (sys.executable, "-P", "-m", "pallas.cli.import_probe", *names)
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=root,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=_MAX_REPORT,
        start_new_session=True,
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE):
            await child.stdout.readline()  # Pallas and fast-agent are imported
        for _ in names:
            async with asyncio.timeout(deadline):
                line = await child.stdout.readline()
                status = None if line else await child.wait()
            if status is not None:
                yield {"problem": f"ended the process while it was imported (status {status})"}
                return
            yield dict(json.loads(line))
    except TimeoutError:
        yield {"problem": f"does not import within {deadline:g} seconds"}
    except ValueError:
        yield {"problem": f"uses so many servers that the report has more than {_MAX_REPORT:,} bytes"}
    finally:
        # Processes that the user's code started end with it.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()


def _mistakes(project: Project, agent: AgentConfig, report: dict[str, Any]) -> tuple[Mistake, ...]:
    notes = Notes()
    path = code_file(project.root, agent)
    where = Where(shown(project.root, path)) if path else agent.where
    key = f"agents.{agent.name}.{'handler' if agent.handler else 'card' if agent.card else 'module'}"
    if agent.card is not None and read_cards(project.root, agent.card).missing:
        return ()  # the text shows it
    if problem := str(report.get("problem", "")):
        place = _PLACE.fullmatch(problem)
        if place and report.get("imports"):
            own = _KEY.fullmatch(place["problem"])
            problem, _, hint = (own["problem"] if own else place["problem"]).partition("; ")
            notes.error(Where(place["file"], int(place["line"])), own["key"] if own else key, problem, hint)
        elif place:
            notes.error(Where(place["file"], int(place["line"])), key, f"does not import: {place['problem']}")
        else:
            problem, _, hint = problem.removeprefix(f"{where}: ").partition("; ")
            notes.error(where, key, problem, hint)
    servers, shows = servers_of(project), {each.problem for each in server_mistakes(project, agent)}
    for name in report.get("servers", ()):
        if (found := server_problem(project, name, servers)) and found[0] not in shows:
            notes.error(where, key, *found)
    # A choice that the text shows is reported by it.
    if (words := report.get("warning")) and choice_of(project.root, agent) is None:
        notes.warn(agent.where, f"agents.{agent.name}.module", *words)
    return notes.sorted([])
