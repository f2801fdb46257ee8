"""What runs in addition to the agents: ``servers:`` and ``scripted:``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from .command import Command, command_of
from .field_types import CHOICE, Line, Maybe, Port, TextRule, Word
from .file_model import FileModel
from .files import folder_like, is_folder, project_file
from .models import ScriptedConfig, ServerConfig
from .network import local_port, url_problem
from .notes import suggest
from .ports import Ports
from .supervision import Restart, restart_of

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ProgramEntry(FileModel):
    """A program of the project that agents call, such as an MCP server; started and ended with the fleet."""

    command: Annotated[Command, Field(examples=["python servers/docs.py", ["python", "servers/docs.py"]])]
    """The program and its arguments: a list, or one text that is split as by a shell; no shell runs it."""
    url: Annotated[str, TextRule(url_problem), Field(examples=["http://127.0.0.1:24250/mcp"])]
    """The URL that must answer; no other part of the project may have its port."""
    cwd: Maybe[Line] = None
    """The folder where it runs; without it the project's."""
    env: dict[str, Word] | None = None
    """Variables added to its environment."""
    start_timeout: Annotated[float, Field(ge=0.1, le=600)] = 30.0
    """Seconds until it must answer."""
    transport: Annotated[Literal["http", "stdio"], CHOICE] = "http"
    """How the program speaks; one that speaks ``stdio`` is served at ``url`` by the fleet."""
    restart: Restart = "on-failure"
    """What happens when it fails."""
    required: bool = False
    """No agent that calls this program answers without it."""


class ScriptedSection(FileModel):
    """A model that follows a script, for work without a key and a network."""

    script: Annotated[Line, Field(examples=["model.yaml"])]
    """The file with the rules."""
    port: Annotated[Port, Field(examples=[24290])]
    """Where the model answers, at ``http://127.0.0.1:PORT/v1``."""


def scripted_config(section: ScriptedSection, root: Path, ports: Ports) -> ScriptedConfig | None:
    """``scripted:``, None when a part of it is missing or wrong."""
    at = section.at
    script = project_file(at, "script", root, section.script)
    if section.port is not None:
        ports.claim(section.port, "the scripted model", at.place("port"), at.key("port"))
    return ScriptedConfig(script, section.port, at.where) if script and section.port else None


def server_configs(
    entries: Mapping[str, ProgramEntry] | None, root: Path, ports: Ports
) -> Mapping[str, ServerConfig]:
    """``servers:`` by name. The port of a URL on this machine is claimed."""
    found = ((name, _server(entry, name, root, ports)) for name, entry in (entries or {}).items())
    return {name: server for name, server in found if server is not None}


def _server(entry: ProgramEntry, name: str, root: Path, ports: Ports) -> ServerConfig | None:
    section = entry.at
    if not _NAME.fullmatch(name):
        hint = "allowed: letters, digits and . _ - after the first, at most 100"
        section.notes.error(section.where, section.path, "is not a name for a server", hint)
    command, url = command_of(section, entry.command), entry.url
    cwd = root / (entry.cwd or ".")
    if not is_folder(cwd):
        hint = "allowed: a folder; paths start at the project's folder"
        section.error("cwd", "there is no such folder", hint, suggest(folder_like(root, cwd)))
    if url and (port := local_port(url)):
        ports.claim(port, f"server {name}", section.place("url"), section.key("url"))
    if entry.transport == "stdio" and url and (local_port(url) is None or url.startswith("https:")):
        section.error(
            "url",
            "is not on this machine, where the fleet serves what speaks stdio",
            "write http://127.0.0.1:PORT/mcp",
        )
    restart = restart_of(entry.restart)
    if not command or not url:
        return None
    return ServerConfig(
        name=name,
        command=command,
        url=url,
        cwd=cwd.absolute(),
        env=entry.env or {},
        start_timeout=entry.start_timeout,
        transport=entry.transport,
        restart=restart,
        required=entry.required,
        where=section.where,
    )
