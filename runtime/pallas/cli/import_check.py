"""Import each agent's code in its own process, as the fleet would, and report what fails."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from pallas.config import AgentConfig, Mistake, Project, Where, export_env
from pallas.config.agent_code import server_mistakes, servers_of, unknown_server
from pallas.config.code import code_file
from pallas.config.files import shown
from pallas.config.notes import Notes

DEADLINE: Final = 60.0
_AT_A_TIME: Final = 4
_MAX_REPORT: Final = 64 * 1024
_SHORTEST_SECRET: Final = 8
_SECRET: Final = re.compile(r"key|token|secret|password|authorization|headers|env$", re.IGNORECASE)
_PLACE: Final = re.compile(r"(?P<file>[^:]+):(?P<line>\d+): (?P<problem>.*)", re.DOTALL)


def probe(project: Project, deadline: float = DEADLINE) -> tuple[Mistake, ...]:
    """Return the mistakes in the agents' code, in the order of the agents; empty when they all import.

    Each import has ``deadline`` seconds. User code runs in child processes, which have all ended on return.
    """
    environ = dict(os.environ)
    export_env(project.root, environ)
    with TemporaryDirectory(prefix="pallas-check-") as folder:
        reports = asyncio.run(_import_all(project, environ, Path(folder), deadline))
    secrets = _secrets(project, environ)
    return tuple(
        mistake
        for agent, report in zip(_with_code(project), reports, strict=True)
        for mistake in _mistakes(project, agent, report, secrets)
    )


def _with_code(project: Project) -> list[AgentConfig]:
    """Return the agents that are Python code or have a card; the others have nothing to import."""
    return [agent for agent in project.agents.values() if agent.kind in ("llm", "handler")]


async def _import_all(
    project: Project, environ: dict[str, str], folder: Path, deadline: float
) -> list[dict[str, Any]]:
    free = asyncio.Semaphore(min(_AT_A_TIME, os.cpu_count() or 1))

    async def one(number: int, name: str) -> dict[str, Any]:
        async with free:
            return await _import(project.root, name, environ, folder / str(number), deadline)

    return await asyncio.gather(*(one(number, each.name) for number, each in enumerate(_with_code(project))))


async def _import(
    root: Path, name: str, environ: dict[str, str], report: Path, deadline: float
) -> dict[str, Any]:
    # -P: the project's files must not shadow the standard library while the probe starts.
    command = (sys.executable, "-P", "-m", "pallas.cli.import_probe", name, str(report))
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=root,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(deadline):
            status = await child.wait()
    except TimeoutError:
        return {"problem": f"does not import within {deadline:g} seconds"}
    finally:
        # Processes that the user's code started end with it.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.wait()
    try:
        with report.open("rb") as stream:
            found: dict[str, Any] = json.loads(stream.read(_MAX_REPORT))
            return found
    except (OSError, ValueError):
        return {"problem": f"ended the process while it was imported (status {status})"}


def _mistakes(
    project: Project, agent: AgentConfig, report: dict[str, Any], secrets: Sequence[str]
) -> tuple[Mistake, ...]:
    notes = Notes()
    path = code_file(project.root, agent)
    where = Where(shown(project.root, path)) if path else agent.where
    key = f"agents.{agent.name}.{'handler' if agent.handler else 'card' if agent.card else 'module'}"
    if problem := _masked(str(report.get("problem", "")), secrets):
        place = _PLACE.fullmatch(problem)
        if place:
            notes.error(Where(place["file"], int(place["line"])), key, f"does not import: {place['problem']}")
        else:
            problem, _, hint = problem.removeprefix(f"{where}: ").partition("; ")
            notes.error(where, key, problem, hint)
    servers, shows = servers_of(project), {each.problem for each in server_mistakes(project, agent)}
    for name in report.get("servers", ()):
        if name not in servers and (found := unknown_server(name, servers))[0] not in shows:
            notes.error(where, key, *found)
    return notes.sorted([])


def _secrets(project: Project, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return texts to remove from an exception's message: what .env sets, and every key and token."""
    found = [value for name, value in environ.items() if name not in os.environ]

    def collect(value: Any, secret: bool) -> None:
        if isinstance(value, Mapping):
            for key, inner in value.items():
                collect(inner, secret or _SECRET.search(key) is not None)
        elif isinstance(value, list):
            for inner in value:
                collect(inner, secret)
        elif secret and isinstance(value, str):
            found.append(value)

    collect(project.settings, False)
    return tuple(sorted((value for value in found if len(value) >= _SHORTEST_SECRET), key=len, reverse=True))


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return text
