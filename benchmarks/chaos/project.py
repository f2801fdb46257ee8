"""The project of the chaos: copies of one folder that differ in ports and in the user of the database."""

import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

AGENT: Final = "clerk"
RULES: Final = {"look": "repeat", "left": "repeat", "right": "repeat", "pay": "fail"}
"""What becomes of a call whose answer was lost, by tool; the others are told to the model."""
TOOLS: Final = {"note": 0.1, "slow": 0.8, "left": 0.3, "right": 0.4, "look": 0.3, "pay": 0.3}
"""The tools in the order of a run, with the seconds that each takes."""
STEPS: Final = (("note",), ("slow",), ("left", "right"), ("look",), ("pay",))
"""The calls of each step of a run; the sixth step is the answer."""
# Below the ports of outgoing connections: a replica must get its own again each time that it is started.
_PORTS: Final = range(12_000, 32_000)
_MODULE: Final = """
from fast_agent import FastAgent

fast = FastAgent("clerk")


@fast.agent(name="clerk", instruction="You are the clerk.", servers=["desk"])
async def main() -> None: ...
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a replica is: its folder and its ports."""

    root: Path
    port: int
    tools: int
    """The port of the tool server that is asked by this replica alone."""

    @property
    def log(self) -> Path:
        return self.root / "pallas.log"


def free_ports(count: int, chance: random.Random) -> list[int]:
    """Ports that were free a moment ago."""
    found: list[int] = []
    while len(found) < count:
        port = chance.choice(_PORTS)
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def write(folder: Path, urls: list[str], *, isolation: str = "none") -> list[Place]:
    """Write one copy for each database URL."""
    ports = free_ports(3 * len(urls), random.Random())
    places = []
    for number, url in enumerate(urls):
        port, model, tools = ports[3 * number : 3 * number + 3]
        place = Place(folder / f"replica{number}", port, tools)
        (place.root / "agents").mkdir(parents=True)
        (place.root / "agents" / "__init__.py").touch()
        (place.root / "agents" / f"{AGENT}.py").write_text(_MODULE)
        (place.root / "model.yaml").write_text(_script())
        topology = {
            "name": "chaos",
            "bind": "127.0.0.1",
            "port": port,
            "database_url": url,
            "drain": "hand_over",
            "drain_timeout": 10,
            "unfinished_calls": {f"desk__{tool}": rule for tool, rule in RULES.items()},
            "scripted": {"script": "model.yaml", "port": model},
            "agents": {AGENT: {"module": f"agents.{AGENT}", "max_instances": 32, "isolation": isolation}},
        }
        settings = {
            "default_model": "generic.scripted",
            "generic": {"base_url": f"http://127.0.0.1:{model}/v1", "api_key": "offline"},
            "logger": {"type": "none", "progress_display": False},
            "mcp": {
                "servers": {
                    "desk": {"url": f"http://127.0.0.1:{tools}/mcp", "auth": {"oauth": False}},
                }
            },
        }
        (place.root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
        (place.root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
        places.append(place)
    return places


def _script() -> str:
    """The model's script: one rule for each step, whose condition is a result of the step before."""
    rules: list[dict[str, object]] = []
    before: dict[str, str] = {"last": "user"}
    for step in STEPS:
        call = [{"tool": f"desk__{tool}", "arguments": {"text": "{{ user }}"}} for tool in step]
        rules.append({"when": before, "call": call})
        before = {"last": "tool", "tool": f"desk__{step[0]}"}
    rules.append({"when": before, "say": "done {{ user }}"})
    return yaml.safe_dump({"rules": rules}, sort_keys=False)
