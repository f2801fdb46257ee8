"""What an MCP server is made of, as a digest: its entry in the configuration, and its files."""

import ast
import json
import warnings
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from pallas.config import Project
from pallas.config.files import shown
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

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


def check_server_scripts(project: Project, files: Iterable[Path]) -> None:
    """Raise Fault (CONFIG) if one of ``files`` belongs to a stdio server and is not valid Python. Blocks.

    A server that is down does not keep an agent from its start, so nothing else would refuse such a save.
    """
    saved = {path for path in files if path.suffix == ".py"}
    for name in project.downstreams if saved else ():
        for path in saved & server_files(project, name):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ast.parse(path.read_bytes(), path.name)
            except SyntaxError as error:
                place = f"{shown(project.root, path)}:{error.lineno or 0}"
                text = one_line(
                    f"{place}: server {name} is not valid Python: {error.msg}; fix it there, or in "
                    f"a line above"
                )
                raise Fault(FaultType.CONFIG, text, data={"place": place}) from None
            except (OSError, ValueError, RecursionError, MemoryError):  # the server says so when it starts
                continue


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
