"""Check the programs that a fleet starts: workers, MCP servers on stdin and stdout, and ``servers:``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pallas.config import Mistake, Project, Where
from pallas.config.command import program_problem
from pallas.config.files import file_like, folder_like, is_file, is_folder, shown
from pallas.config.notes import Notes, suggest
from pallas.fleet.reload.import_scan import command_files

from .code_check import parsed

_INSTALL: Final = "install it, or name it with its path; paths start at its cwd"


@dataclass(frozen=True, slots=True)
class _Program:
    """A command and where it is written; ``path`` is its own ``PATH``, None if it has none."""

    where: Where
    key: str
    command: tuple[str, ...]
    cwd: Path
    path: str | None


def program_mistakes(project: Project) -> tuple[Mistake, ...]:
    """Return a warning for each program or script that is missing, and mistakes in scripts of the project.

    What is missing may be installed before the fleet starts, so it is not refused. Runs nothing.
    """
    notes, seen = Notes(), set[Path]()
    for program in (*_workers(project), *_downstreams(project), *_servers(project)):
        if not is_folder(program.cwd):
            problem = f"starts in {shown(project.root, program.cwd)}, and there is no such folder"
            near = suggest(folder_like(project.root, program.cwd))
            notes.warn(program.where, program.key, problem, near or "create it, or correct cwd:")
        elif problem := program_problem(program.command, program.cwd, program.path):
            notes.warn(program.where, program.key, problem, _fix(program))
        elif script := _missing_script(program):
            near = suggest(file_like(program.cwd, program.cwd / script))
            notes.warn(program.where, program.key, f"there is no script {script}", near or _INSTALL)
        for path in sorted(command_files(program.command, program.cwd, project.root) - seen):
            seen.add(path)
            if path.suffix == ".py" and is_file(path):
                parsed(project.root, path, program.key, notes)
    return notes.sorted([])


def _fix(program: _Program) -> str:
    """What to do about a program that is missing."""
    first, *more = program.command[0].split() or [""]
    if more and program.key.startswith("mcp.") and program_problem((first,), program.cwd, program.path) == "":
        return f"it is one word: write `command: {first}` and `args: [{', '.join(more)}]`"
    return _INSTALL


def _missing_script(program: _Program) -> str:
    """The script that Python does not find; empty if it does, and for another program."""
    if not Path(program.command[0]).name.startswith("python"):
        return ""
    script = next((word for word in program.command[1:2] if word.endswith(".py")), "")
    return script if script and not is_file(program.cwd / script) else ""


def _workers(project: Project) -> Iterator[_Program]:
    for agent in project.agents.values():
        if (worker := agent.worker) is not None:
            key, path = f"agents.{agent.name}.command", worker.env.get("PATH")
            yield _Program(agent.where, key, worker.command, worker.cwd, path)


def _servers(project: Project) -> Iterator[_Program]:
    for name, server in project.servers.items():
        path = server.env.get("PATH")
        yield _Program(server.where, f"servers.{name}.command", server.command, server.cwd, path)


def _downstreams(project: Project) -> Iterator[_Program]:
    mcp = project.settings.get("mcp")
    entries = mcp.get("servers") if isinstance(mcp, Mapping) else None
    for name, server in project.downstreams.items():
        entry = entries.get(name) if isinstance(entries, Mapping) else None
        if server.transport != "stdio" or not server.command or not isinstance(entry, Mapping):
            continue
        cwd, env = entry.get("cwd"), entry.get("env")
        folder = project.root / cwd if isinstance(cwd, str) else project.root
        path = env.get("PATH") if isinstance(env, Mapping) else None
        known = path if isinstance(path, str) else None
        yield _Program(server.where, f"mcp.servers.{name}.command", server.command, folder, known)
