"""Projects on the offline model, whose agents may call servers of the project and one another."""

from pathlib import Path
from typing import Any

import yaml

from pallas.fleet.fleet import Fleet
from pallas.scripted.scripted_server import RequestRecord, record_of

from .live import ECHO, write_project
from .ports import free_ports


def offline_model(script: str, **more: Any) -> dict[str, Any]:
    """What ``write_project`` or ``typed_project`` gets for agents on the offline model following ``script``.

    ``more`` is for it as well; its ``top``, ``config`` and ``files`` come in addition.
    """
    (port,) = free_ports(1)
    model = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "offline"},
    }
    return {
        **more,
        "top": {"scripted": {"script": "model.yaml", "port": port}, **more.get("top", {})},
        "config": {**model, **more.get("config", {})},
        "files": {"model.yaml": script, **more.get("files", {})},
    }


def offline_project(
    root: Path,
    agents: dict[str, str | None],
    script: str,
    *,
    peers: tuple[str, ...] = (),
    elders: tuple[str, ...] = (),
    **more: Any,
) -> Path:
    """A project on the offline model following ``script``; ``more`` as for ``write_project``.

    The downstream ``echo`` is there, each of ``peers`` is one under its own name, each of ``elders`` is
    one as ``elder_NAME``, called in the handshake era, and ``config`` may add others under ``mcp.servers``.
    """
    more = offline_model(script, **more)
    config = more.pop("config")
    write_project(root, agents, **more)
    entries = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))["agents"]
    servers = ECHO["mcp"]["servers"] | config.get("mcp", {}).get("servers", {})
    for name in (*peers, *elders):
        url = f"http://127.0.0.1:{entries[name]['port']}/mcp"
        if name in peers:
            servers[name] = {"url": url, "auth": {"oauth": False}}
        if name in elders:
            servers[f"elder_{name}"] = {"url": url, "auth": {"oauth": False}, "protocol_mode": "legacy"}
    settings = {
        "logger": {"type": "none", "progress_display": False},
        **config,
        "mcp": {"servers": servers},
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
    return root


def model_record(fleet: Fleet) -> RequestRecord:
    """What the fleet's offline model was asked."""
    assert fleet.surfaces.offline_model.server is not None
    return record_of(fleet.surfaces.offline_model.server)
