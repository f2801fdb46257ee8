"""What an MCP server is made of, as a digest: its entry in the configuration, and its files."""

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from pallas.config import Project

from .import_scan import command_files
from .source_files import SourceFiles

_LIBRARIES: Final = frozenset({"site-packages", "venv", "node_modules"})


def server_files(project: Project, server: str) -> frozenset[Path]:
    """The project's files that a stdio server runs, absolute; none of another server. Blocks."""
    downstream = project.downstreams.get(server)
    if downstream is None or downstream.transport != "stdio":
        return frozenset()
    mcp = project.settings.get("mcp")
    entry = (mcp.get("servers") or {}).get(server) if isinstance(mcp, Mapping) else None
    cwd = entry.get("cwd") if isinstance(entry, Mapping) else None
    folder = project.root / cwd if isinstance(cwd, str) else project.root
    return command_files(downstream.command, folder, project.root)


def server_digest(project: Project, server: str) -> str:
    """The SHA-256 of what a server is made of, in hex; empty for one that the project does not have.

    Of the environment and the headers only the names count, and of a value with ``${VARIABLE}`` that text.
    Files of libraries and hidden ones do not count: another checkout has none. Blocks.
    """
    downstream = project.downstreams.get(server)
    if downstream is None:
        return ""
    files = frozenset(
        path for path in server_files(project, server) if not _is_installed(path.relative_to(project.root))
    )
    sources = SourceFiles().with_more(files, since=float("inf"))
    made_of = [downstream.written, sources.digest_of(files, project.root)]
    return sha256(json.dumps(made_of).encode()).hexdigest()


def _is_installed(path: Path) -> bool:
    return any(part.startswith(".") or part in _LIBRARIES for part in path.parts)
