"""From saving a file until the first and the last of 20 recorded runs through three agents are judged, while
their fleet runs: a comment, which replays all of them whole, the instruction of the agent that is asked, and
that of one which it asks. And of these two until a model that takes 0.2 s has answered, too
(`live: always`)."""

import json
import subprocess
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any
from urllib.request import Request, urlopen

import yaml

from pallas.surfaces.control.token_file import find_tokens

from .programs import DEADLINE, free_ports, process, until_line
from .report import Figure

RUNS = 20
SAVES = 5
FIRST_AIM, LAST_AIM, LIVE_AIM = 1.0, 3.0, 3.0
_LIVE = {"verdict": {"live": "always"}}
_AGENT = """
from fast_agent import FastAgent

fast = FastAgent("{name}")


@fast.agent(name="{name}", instruction="You are {name}.", servers={servers})
async def main() -> None: ...
"""
_SHELF = '''
from mcp.server.mcpserver import MCPServer

server = MCPServer("shelf")


@server.tool()
def find(what: str) -> str:
    """Find a thing on the shelf."""
    return f"three {what}"


server.run("stdio")
'''
_SCRIPT = """
rules:
  - when: {last: user, system: You are desk}
    call:
      - {tool: clerk__send_message, arguments: {message: "find lamps"}}
      - {tool: keeper__send_message, arguments: {message: "count lamps"}}
  - when: {last: user, system: You are clerk}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
  - when: {last: tool}
    say: "All in all: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


@dataclass(frozen=True)
class _Judged:
    first: float
    last: float
    counts: dict[str, int]
    calls: int


def measure() -> list[Figure]:
    """Each kind of save several times; the first one, before which nothing was judged, counts too."""
    with tempfile.TemporaryDirectory(prefix="pallas-bench-") as folder:
        root, port = _project(Path(folder).resolve())
        with _fleet(root):
            _keep(root, port)
        with _fleet(root, "--watch"):
            sleep(30)  # the process that judges gets ready
            found = {
                "a comment": _saves(root, port, "desk", lambda text, number: f"{text}\n# {number}\n"),
                "an instruction": _saves(root, port, "desk", _instructed),
                "one of an agent below": _saves(root, port, "clerk", _instructed),
            }
        _ask_models(root)
        with _fleet(root, "--watch"):
            sleep(30)
            asked = {
                "an instruction": _saves(root, port, "desk", _instructed, "asked"),
                "one of an agent below": _saves(root, port, "clerk", _instructed, "asked"),
            }
    figures = [figure for name, judged in found.items() for figure in _figures(name, judged)]
    return [*figures, *(_live_figure(name, judged) for name, judged in asked.items())]


def _ask_models(root: Path) -> None:
    """Have models asked that take 0.2 s."""
    topology = yaml.safe_load((root / "agents.yaml").read_text())
    (root / "agents.yaml").write_text(yaml.safe_dump(topology | _LIVE, sort_keys=False))
    (root / "model.yaml").write_text(f"delay: 0.2\n{_SCRIPT}")


def _live_figure(name: str, judged: list[_Judged]) -> Figure:
    last = [each.last for each in judged]
    words = ", ".join(f"{count} {word}" for word, count in judged[-1].counts.items())
    worst = f"max {max(last):.2f} s; {words}; {judged[-1].calls} model calls"
    return Figure(f"{name}: to the last of {RUNS} with a model, p50", median(last), LIVE_AIM, "s", worst)


def _figures(name: str, judged: list[_Judged]) -> Iterator[Figure]:
    first, last = ([getattr(each, which) for each in judged] for which in ("first", "last"))
    words = ", ".join(f"{count} {word}" for word, count in judged[-1].counts.items())
    worst = f"max {max(first):.2f} s of {len(judged)} saves"
    yield Figure(f"{name}: save to the first verdict, p50", median(first), FIRST_AIM, "s", worst)
    worst = f"max {max(last):.2f} s; {words}"
    yield Figure(f"{name}: to the last of {RUNS}, p50", median(last), LAST_AIM, "s", worst)


def _instructed(text: str, number: int) -> str:
    return text.replace("You are", f"Number {number}: you are")


def _saves(
    root: Path, port: int, agent: str, change: Callable[[str, int], str], live: str = "none"
) -> list[_Judged]:
    file = root / "agents" / f"{agent}.py"
    text = file.read_text()
    judged = [_save(port, partial(file.write_text, change(text, number)), live) for number in range(SAVES)]
    _save(port, partial(file.write_text, text))
    return judged


def _save(port: int, save: Callable[[], object], live: str = "none") -> _Judged:
    before = _seq(port)
    save()
    deadline = perf_counter() + DEADLINE
    while (verdict := _verdict(port)) is None or verdict["seq"] <= before or verdict["live"] != live:
        if perf_counter() > deadline:
            raise TimeoutError("no verdict on a save")
        sleep(0.02)
    return _Judged(verdict["first_seconds"], verdict["seconds"], verdict["counts"], _calls(verdict))


def _calls(verdict: dict[str, Any]) -> int:
    return int(verdict["asked"]["count"]) if verdict["asked"] else 0


def _keep(root: Path, port: int) -> None:
    """Ask once, and make tests of the run: a replay takes as long as that of another question."""
    asked = _api(port, "/agents/desk/chat", {"message": "How many?"})
    archive = b64decode(_api(port, f"/fleet/runs/{asked['runId']}/recording"))
    tests = root / "tests" / "agents"
    tests.mkdir(parents=True)
    for number in range(RUNS):
        (tests / f"run-{number}.tar").write_bytes(archive)
        test = {"agent": "desk", "ask": "How many?", "recording": f"run-{number}.tar"}
        (tests / f"run-{number}.yaml").write_text(yaml.safe_dump(test))


def _seq(port: int) -> int:
    verdict = _verdict(port)
    return int(verdict["seq"]) if verdict is not None else -1


def _verdict(port: int) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = _api(port, "/fleet/verdict")
    return found[-1] if found else None


def _api(port: int, path: str, document: Any = None) -> Any:
    token = next(each.token for each in find_tokens(port))
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    data = json.dumps(document).encode() if document is not None else None
    with urlopen(Request(f"http://127.0.0.1:{port}/api/v1{path}", data, headers), timeout=60) as answer:
        return json.load(answer)


@contextmanager
def _fleet(root: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    with process("-m", "pallas.server", "--serve", *options, "--project", str(root), cwd=root) as running:
        until_line(running, "] running")
        yield running


def _project(root: Path) -> tuple[Path, int]:
    registry, model, *ports = free_ports(5)
    (root / "agents").mkdir(parents=True)
    (root / "agents" / "__init__.py").touch()
    agents = dict(zip(("desk", "clerk", "keeper"), ports, strict=True))
    servers = {"desk": ["clerk", "keeper"], "clerk": ["shelf"], "keeper": []}
    for name in agents:
        (root / "agents" / f"{name}.py").write_text(_AGENT.format(name=name, servers=servers[name]))
    (root / "shelf.py").write_text(_SHELF)
    (root / "model.yaml").write_text(_SCRIPT)
    entries = {name: {"module": f"agents.{name}", "port": port} for name, port in agents.items()}
    topology = {
        "name": "bench",
        "bind": "127.0.0.1",
        "registry_port": registry,
        "scripted": {"script": "model.yaml", "port": model},
        "agents": entries,
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(topology, sort_keys=False))
    called = {
        name: {"url": f"http://127.0.0.1:{agents[name]}/mcp", "auth": {"oauth": False}}
        for name in ("clerk", "keeper")
    }
    settings = {
        "default_model": "generic.scripted",
        "generic": {"base_url": f"http://127.0.0.1:{model}/v1", "api_key": "offline"},
        "logger": {"type": "none", "progress_display": False},
        "mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}, **called}},
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    return root, registry
