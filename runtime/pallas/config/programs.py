"""What runs beside the agents: ``servers:`` and ``scripted:``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from .agents import read_file_name
from .command import read_command
from .files import is_folder
from .models import ScriptedConfig, ServerConfig
from .network import local_port, url_problem
from .ports import Ports
from .section import Section
from .supervision import read_restart

SERVER_KEYS: Final = ("command", "url", "cwd", "env", "start_timeout", "transport", "restart", "required")
SCRIPTED_KEYS: Final = ("script", "port")
DEFAULT_START_TIMEOUT: Final = 30.0
MAX_START_TIMEOUT: Final = 600.0

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def read_scripted(section: Section, root: Path, ports: Ports) -> ScriptedConfig | None:
    """``scripted:``, None when a part of it is missing or wrong."""
    section.only(SCRIPTED_KEYS)
    script = read_file_name(section, "script", root) if section.need("script", "model.yaml") else None
    port = section.integer("port", 1, 65_535) if section.need("port", "24290") else None
    if port is not None:
        ports.claim(port, "the scripted model", section.place("port"), section.key("port"))
    return ScriptedConfig(script, port, section.where) if script and port else None


def read_servers(top: Section, root: Path, ports: Ports) -> Mapping[str, ServerConfig]:
    """``servers:`` by name. The port of a URL on this machine is claimed."""
    found = ((name, _server(section, name, root, ports)) for name, section in top.sections("servers"))
    return {name: server for name, server in found if server is not None}


def _server(section: Section, name: str, root: Path, ports: Ports) -> ServerConfig | None:
    section.only(SERVER_KEYS)
    if not _NAME.fullmatch(name):
        hint = "allowed: letters, digits and . _ - after the first, at most 100"
        section.notes.error(section.where, section.path, "is not a name for a server", hint)
    command = read_command(section) if section.need("command", "python servers/docs.py") else ()
    url = (
        section.text("url", check=url_problem) if section.need("url", "http://127.0.0.1:24250/mcp") else None
    )
    cwd = root / (section.text("cwd") or ".")
    if not is_folder(cwd):
        section.error(
            "cwd", "there is no such folder", "allowed: a folder; paths start at the project's folder"
        )
    timeout = section.number("start_timeout", 0.1, MAX_START_TIMEOUT)
    env = section.pairs("env") if "env" in section else {}
    if url and (port := local_port(url)):
        ports.claim(port, f"server {name}", section.place("url"), section.key("url"))
    transport = section.choice("transport", ("http", "stdio"))
    restart = read_restart(section)
    required = section.flag("required") or False
    if transport == "stdio" and url and (local_port(url) is None or url.startswith("https:")):
        section.error(
            "url",
            "is not on this machine, where the fleet serves what speaks stdio",
            "write http://127.0.0.1:PORT/mcp",
        )
    if not command or not url:
        return None
    return ServerConfig(
        name=name,
        command=command,
        url=url,
        cwd=cwd.absolute(),
        env=env,
        start_timeout=DEFAULT_START_TIMEOUT if timeout is None else timeout,
        transport="stdio" if transport == "stdio" else "http",
        restart=restart,
        required=required,
        where=section.where,
    )
