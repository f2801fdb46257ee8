"""How a version of an agent looks to those who use it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pallas.config import AgentConfig, Project
from pallas.executors import Child, ExecutorInfo
from pallas.model import ToolDetail
from pallas.toolbox.plain_json import json_text

# Keys of an agent's configuration that are shown otherwise, or do not matter outside.
_NOT_KEYS: Final = frozenset({"name", "where", "auth"})
_MAX_SETTINGS: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class AgentDigest:
    """What can be told apart of a version without looking into its code. Sanitised, secrets masked.

    ``tools`` are by server (empty for the agent's own code), of those that could be asked; ``servers`` and
    ``config`` are JSON texts by name, ``marks`` tell apart what those do not show.
    """

    instruction: str = ""
    model: str = ""
    children: Mapping[str, Child] = field(default_factory=dict)
    tools: Mapping[str, Mapping[str, ToolDetail]] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, int] = field(default_factory=dict)


def digest_of(info: ExecutorInfo, project: Project, config: AgentConfig) -> AgentDigest:
    """The portrait of what ``info`` tells of, made of these files."""
    settings = (project.settings.get("mcp") or {}).get("servers") or {}
    marks = {f"server {name}": _mark(settings.get(name)) for name in info.servers}
    marks["auth"] = _mark(config.auth)
    secret = [
        dict(config.env),
        config.worker and dict(config.worker.env),
        config.remote and dict(config.remote.headers),
    ]
    marks["secrets"] = _mark(secret)
    return AgentDigest(
        instruction=info.instruction,
        model=info.model,
        children={child.name: child for child in info.children},
        tools={
            each.server: {tool.name: tool for tool in each.tools} for each in info.tools if not each.problem
        },
        servers={name: json_text(settings.get(name) or {}, _MAX_SETTINGS) for name in info.servers},
        config={
            each.name: json_text(_plain(getattr(config, each.name), project.root), _MAX_SETTINGS)
            for each in fields(config)
            if each.name not in _NOT_KEYS
        }
        | _payload(info),
        marks=marks,
    )


def instruction_digest(face: AgentDigest) -> str:
    """The SHA-256 of the instruction, empty without one."""
    return sha256(face.instruction.encode("utf-8", "replace")).hexdigest() if face.instruction else ""


def tools_digest(face: AgentDigest) -> str:
    """The SHA-256 of the tools as models see them, in any order; empty without any.

    That is their names, descriptions and the schemas of their arguments.
    """
    if not any(face.tools.values()):
        return ""
    tools = {
        server: {name: (tool.description, tool.input_schema) for name, tool in own.items()}
        for server, own in face.tools.items()
    }
    return sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()


def _payload(info: ExecutorInfo) -> dict[str, str]:
    if info.payload is None:
        return {}
    return {"payload schema": json_text(info.payload.json_schema, _MAX_SETTINGS, names=False)}


def _plain(value: Any, root: Path) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        # Values that may hold a secret are compared by their mark alone.
        return {each.name: _plain(getattr(value, each.name), root) for each in fields(value) if each.repr}
    if isinstance(value, tuple | list):
        return [_plain(each, root) for each in value]
    if isinstance(value, Path):
        return str(value.relative_to(root) if value.is_relative_to(root) else value)
    return value.value if isinstance(value, Enum) else value


def _mark(value: Any) -> int:
    """The same for equal values, in this process."""
    return hash(json.dumps(value, sort_keys=True, default=repr))
