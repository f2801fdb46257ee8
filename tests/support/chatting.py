"""A project with a model of the test's own, served in a process, and `pallas chat` on it."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import yaml

from . import pallas_process, scripted
from .live import ECHO, agent_module, write_project
from .served import served

# What code of an agent prints is no part of an answer.
NOISE = """
import os

print("NOISE", flush=True)
os.write(1, b"NOISE")
os.write(2, b"NOISE")
"""

SCRIPT = """
models: [scripted]
rules:
  - when: {last: user, text: use your tool}
    say: "I look."
    call: [{tool: echo__echo, arguments: {text: "x"}}]
  - when: {last: tool}
    say: "It said {{ result }}"
  - when: {last: user, text: take your time}
    say: "Never"
    delay: 300
  - when: {last: user, text: hostile}
    say: "\\e]0;owned\\a\\e[2Jred"
  - say: "turn {{ turns }}, first {{ first }}"
"""


@contextmanager
def model(folder: Path, script: str = SCRIPT) -> Iterator[scripted.Model]:
    """A model that follows ``script``, on a thread and loop of its own."""
    ready: Future[scripted.Model] = Future()
    stop: Future[None] = Future()

    async def serve() -> None:
        async with scripted.model(folder, script) as running:
            ready.set_result(running)
            await asyncio.wrap_future(stop)

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    try:
        yield ready.result(60)
    finally:
        stop.set_result(None)
        thread.join(60)


@dataclass
class Desk:
    """A project, its model, and where what is kept of it goes. ``url`` is its fleet's, where one runs."""

    root: Path
    state: Path
    model: scripted.Model

    @property
    def url(self) -> str:
        """The registry's origin."""
        entries = yaml.safe_load((self.root / "agents.yaml").read_text("utf-8"))
        return f"http://127.0.0.1:{entries['registry_port']}"

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of its commands: nothing of this user's."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
        return {
            **kept,
            "XDG_STATE_HOME": str(self.state),
            "PALLAS_LOG_FILE": str(self.state / "pallas.log"),
            "TERM": "xterm-256color",
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        """The command line of `pallas chat` on the project, for a terminal."""
        return [sys.executable, "-m", "pallas.server", "chat", *arguments, "-p", str(self.root)]

    def chat(self, *arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        """What `pallas chat` on the project says and how it ends."""
        return pallas_process.run(
            *("chat", *arguments, "-p", str(self.root)),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=self.environment(**more),
        )

    def start(self, *arguments: str, **streams: int) -> subprocess.Popen[bytes]:
        """The same while it goes on."""
        apart = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return pallas_process.start(
            *("chat", *arguments, "-p", str(self.root)), **(apart | streams), env=self.environment()
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request to its API."""
        answer = httpx2.request(method, f"{self.url}/api/v1{path}", json=body, timeout=60, trust_env=False)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def asked(self) -> Mapping[str, Any]:
        """What its model was asked last."""
        found: Mapping[str, Any] = self.model.record.requests[-1]
        return found

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Its fleet runs meanwhile."""
        kept = {
            name: value for name, value in self.environment().items() if name.startswith(("XDG", "PALLAS"))
        }
        top = yaml.safe_load((self.root / "agents.yaml").read_text("utf-8"))
        with served(
            self.root,
            log=self.state / "fleet.log",
            **{k: v for k, v in kept.items() if k != "PALLAS_LOG_FILE"},
        ):
            _until_ready(self.url, len(top["agents"]))
            yield


def desk(folder: Path, running: scripted.Model) -> Desk:
    """A project of two agents, one of which has a tool."""
    state = folder / "state"
    state.mkdir()
    root = write_project(
        folder / "desk",
        {"research": agent_module("research", ("echo",)) + NOISE, "vision": None},
        top={"bind": "127.0.0.1"},
        config={
            "default_model": "generic.scripted",
            "generic": {"base_url": running.url, "api_key": "offline"},
            **ECHO,
        },
    )
    return Desk(root, state, running)


def _until_ready(url: str, agents: int) -> None:
    from time import monotonic, sleep

    deadline = monotonic() + 90
    while True:
        try:
            answer = httpx2.get(f"{url}/readyz", timeout=60, trust_env=False)
            if answer.status_code == 200 and len(answer.json().get("agents", {})) >= agents:
                return
        except (httpx2.HTTPError, ValueError):
            pass
        assert monotonic() < deadline, "the fleet did not get ready"
        sleep(0.1)
