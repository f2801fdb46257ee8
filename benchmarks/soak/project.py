"""The fleet of the soak: one of each kind that there is to break."""

from pathlib import Path
from typing import Any, Final

import yaml

from ..programs import ECHO, free_ports

AGENTS: Final = ("plain", "alone", "front")
_MODULE: Final = """
from fast_agent import FastAgent

fast = FastAgent("{name}")


# version 0
@fast.agent(name="{name}", instruction="You are {name}. version 0", servers={servers!r})
async def main() -> None: ...
"""
# What is asked for is in the message, so that an answer to another question is seen.
_SCRIPT: Final = """
delay: 0.02
rules:
  - when: {last: tool}
    say: "told {{ result }}"
  - when: {last: user, text: "ask echo"}
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: user, text: "ask bridge"}
    call: [{tool: bridge__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: user, system: You are front, text: "ask plain"}
    call: [{tool: plain__send_message, arguments: {message: "{{ last }}"}}]
  - when: {last: user, text: "take long"}
    say: "a long answer to {{ last }} that is written slowly, word by word, so that it can be cut short"
    pace: 0.2
  - say: "told {{ last }}"
"""


def write(root: Path) -> dict[str, str]:
    """Write the project; returns the agents' URLs and the registry's (``registry``)."""
    registry, model, bridge, *ports = free_ports(3 + len(AGENTS))
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "__init__.py").touch()
    servers: dict[str, list[str]] = {"plain": ["echo"], "alone": ["echo"], "front": ["bridge", "plain"]}
    quickly = {"backoff": 0.2, "backoff_max": 1, "crashes": 1000, "within": 60}
    agents: dict[str, Any] = {}
    for name, port in zip(AGENTS, ports, strict=True):
        (root / "agents" / f"{name}.py").write_text(_MODULE.format(name=name, servers=servers[name]))
        agents[name] = {"module": f"agents.{name}", "port": port, "restart": quickly, "max_instances": 2}
    agents["alone"]["isolation"] = "process"
    agents["front"]["depends_on"] = ["plain"]
    url = f"http://127.0.0.1:{bridge}/mcp"
    (root / "echo.py").write_text(ECHO)
    (root / "model.yaml").write_text(_SCRIPT)
    topology = {
        "name": "soak",
        "bind": "127.0.0.1",
        "registry_port": registry,
        "scripted": {"script": "model.yaml", "port": model},
        "servers": {
            "bridge": {
                "command": "python echo.py",
                "transport": "stdio",
                "url": url,
                "restart": quickly,
            }
        },
        "agents": agents,
    }
    plain = f"http://127.0.0.1:{agents['plain']['port']}/mcp"
    settings = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{model}/v1", "api_key": "offline"},
        "logger": {"type": "none", "progress_display": False},
        "mcp": {
            "servers": {
                "echo": {"command": "python", "args": ["echo.py"]},
                "bridge": {"url": url, "auth": {"oauth": False}},
                "plain": {"url": plain, "auth": {"oauth": False}},
            }
        },
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    urls = {name: f"http://127.0.0.1:{entry['port']}/mcp" for name, entry in agents.items()}
    return urls | {"registry": f"http://127.0.0.1:{registry}"}
