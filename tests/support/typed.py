"""Projects of typed handlers, and what their callers do."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from .ports import free_ports

Entry = Mapping[str, Any]


def typed_project(
    root: Path,
    source: str,
    entries: Mapping[str, Entry],
    *,
    top: Entry | None = None,
    config: Entry | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """A project whose handlers are in ``desk.py``, all at one port.

    An entry without ``kind`` is a typed handler: ``handler`` is the function of its name with ``.`` and ``-``
    as ``_``, ``payload`` names a class of ``desk.py``.
    """
    root.mkdir(parents=True, exist_ok=True)
    agents: dict[str, Any] = {}
    for name, entry in entries.items():
        if "kind" in entry or "module" in entry:
            agents[name] = dict(entry)
            continue
        given = {"kind": "handler", "handler": f"desk:{name.replace('.', '_').replace('-', '_')}", **entry}
        if ":" not in given.get("payload", ":"):
            given["payload"] = f"desk:{given['payload']}"
        agents[name] = {"description": f"Takes messages as {name}.", **given}
    (port,) = free_ports(1)
    document = {"name": "desk", "port": port, **(top or {}), "agents": agents}
    (root / "agents.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    settings: dict[str, Any] = {
        "default_model": "passthrough",
        "logger": {"type": "none", "progress_display": False},
        **(config or {}),
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    for path, text in {"desk.py": source, **(files or {})}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(textwrap.dedent(text))
    return root
