"""The services of compose.yaml as processes, with the settings that it gives them and other addresses."""

import asyncio
import base64
import json
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any, Final

import asyncpg  # type: ignore[import-untyped]
import httpx2
import yaml

from benchmarks.chaos.database import PostgresServer
from benchmarks.chaos.project import TOOLS
from deploy.rehearse import DEPLOY, stages

AGENT: Final = "desk"
PORT: Final = 24200
MODEL_PORT: Final = 24290
READY_SECONDS: Final = 60.0
STEPS: Final = (("note",), ("slow",), ("left", "right"))
"""The calls of each step of a run; then it answers. A drained replica hands over between steps."""


class Compose:
    """What compose.yaml says of its replicas."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        services: dict[str, Any] = self._whole["services"]
        self.names = [name for name, each in services.items() if each["image"] == "pallas"]
        self._replica: dict[str, Any] = services[self.names[0]]
        self.database_user = str(services["postgres"]["environment"]["POSTGRES_USER"])
        self.database = str(services["postgres"]["environment"]["POSTGRES_DB"])
        self.grace_seconds = float(str(self._replica["stop_grace_period"]).removesuffix("s"))

    def environment(self, addresses: dict[str, str]) -> dict[str, str]:
        """The variables of a replica. ``addresses`` replace those of the containers."""
        given = {}
        for name, value in self._replica["environment"].items():
            text = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
            for there, here in addresses.items():
                text = text.replace(there, here)
            given[name] = text
        return given

    def write_secrets(self, folder: Path) -> dict[str, str]:
        """Write a file for each secret of a replica, and return them."""
        made = {}
        folder.mkdir(mode=0o700)
        for name in self._replica["secrets"]:
            file = self._whole["secrets"][name]["file"]
            if name == "PALLAS_SECRET_KEY":
                made[name] = base64.b64encode(secrets.token_bytes(32)).decode()
            elif file == f"./secrets/{name}":
                made[name] = secrets.token_hex(24)
            else:
                made[name] = (DEPLOY / re.sub(r"\$\{\w+:-(.*?)\}", r"\1", file)).read_text()
            (folder / name).write_text(made[name])
        return made


class Replica:
    """One service of compose.yaml: the image's command and variables, in a copy of the sample project."""

    def __init__(self, name: str, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.name, self.port = name, port
        self.statuses: list[int] = []
        self.drain_seconds: list[float] = []
        self.ready_seconds: list[float] = []
        self._project, self._tmp = folder / "project", folder / "tmp"
        self._tmp.mkdir(parents=True)
        image = stages((DEPLOY / "Dockerfile").read_text())[-1]
        words = dict(
            word.split("=", 1) for name, line in image if name == "ENV" for word in shlex.split(line)
        )
        # Its code is compiled, that of this environment perhaps not.
        del words["PYTHONDONTWRITEBYTECODE"]
        self._environment = {
            **{key: value.replace("/tmp", str(self._tmp)) for key, value in words.items()},
            "TMPDIR": str(self._tmp),
            **environment,
        }
        commands = dict(image)
        self._words = json.loads(commands["ENTRYPOINT"]) + json.loads(commands["CMD"])
        self._signal = getattr(signal, commands["STOPSIGNAL"])
        self._process: subprocess.Popen[bytes] | None = None
        self._output_file = folder / "output"
        self._output: IO[bytes] = self._output_file.open("ab")

    def write_project(self, model_port: int, tools_port: int) -> None:
        """Copy the sample project with ports of its own, tools, and a model that calls them."""
        shutil.copytree(DEPLOY / "project", self._project)
        agents = self._edited("agents.yaml", {PORT: self.port, MODEL_PORT: model_port})
        self._write("agents.yaml", {**agents, "bind": "127.0.0.1"})
        servers = {"desk": {"url": f"http://127.0.0.1:{tools_port}/mcp", "auth": {"oauth": False}}}
        settings = self._edited("fastagent.config.yaml", {MODEL_PORT: model_port})
        self._write("fastagent.config.yaml", {**settings, "mcp": {"servers": servers}})
        self._write("model.yaml", {"delay": 0.1, "rules": _rules()})
        card = self._project / f"{AGENT}.md"
        card.write_text(card.read_text().replace("---\n", "---\nservers: [desk]\n", 1))

    async def start(self) -> None:
        """Start it and wait until it takes runs. Raises RuntimeError if it does not."""
        began = monotonic()
        self._process = self._spawn()
        async with httpx2.AsyncClient(trust_env=False, timeout=2) as http:
            while monotonic() - began < READY_SECONDS:
                with suppress(httpx2.HTTPError):
                    if (await http.get(f"http://127.0.0.1:{self.port}/readyz")).status_code == 200:
                        self.ready_seconds.append(monotonic() - began)
                        return
                if self._process.poll() is not None:
                    what = f"{self.name} ended with {self._process.returncode} while it started"
                    raise RuntimeError(f"{what}: {_end_of(self._output_file)}")
                await asyncio.sleep(0.1)
        what = f"{self.name} was not ready within {READY_SECONDS:g} s"
        raise RuntimeError(f"{what}: {_end_of(self._output_file)}")

    async def stop(self, grace_seconds: float) -> None:
        """Ask it to end, and kill it if it does not within the grace period, as compose does."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        began = monotonic()
        process.send_signal(self._signal)
        try:
            await asyncio.to_thread(process.wait, grace_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        self.drain_seconds.append(monotonic() - began)
        self.statuses.append(process.returncode)

    def close(self) -> None:
        """End it at once if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        program, *arguments = self._words
        assert program == "pallas"
        return subprocess.Popen(
            [sys.executable, "-m", "pallas.server", *arguments],
            cwd=self._project,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _edited(self, name: str, ports: dict[int, int]) -> dict[str, Any]:
        text = (self._project / name).read_text()
        for there, here in ports.items():
            text = text.replace(str(there), str(here))
        loaded: dict[str, Any] = yaml.safe_load(text)
        return loaded

    def _write(self, name: str, value: dict[str, Any]) -> None:
        (self._project / name).write_text(yaml.safe_dump(value, sort_keys=False))


def _rules() -> list[dict[str, Any]]:
    """One rule for each step, whose condition is a result of the step before."""
    assert {tool for step in STEPS for tool in step} <= TOOLS.keys()
    rules: list[dict[str, Any]] = []
    before = {"last": "user"}
    for step in STEPS:
        call = [{"tool": f"desk__{tool}", "arguments": {"text": "{{ user }}"}} for tool in step]
        rules.append({"when": before, "call": call})
        before = {"last": "tool", "tool": f"desk__{step[0]}"}
    return [*rules, {"when": before, "say": "done {{ user }}"}]


async def database(user: str, name: str, password: str, port: int) -> PostgresServer:
    """A PostgreSQL as the image of compose.yaml makes it: a user with a password, and a database."""
    server = await asyncio.to_thread(PostgresServer, user=user, password=password, port=port)
    try:
        connection = await asyncpg.connect(server.url(), password=password)
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.close()
    except BaseException:
        server.close()
        raise
    return server


@dataclass(frozen=True, slots=True)
class Health:
    """What HAProxy knows of one replica."""

    status: str
    responses: int


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def haproxy() -> str:
    """The path of HAProxy. Raises SystemExit without it."""
    found = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise SystemExit("HAProxy is not installed; as root: make system-packages")
    return found


class Balancer:
    """HAProxy with the shipped configuration, in which only addresses are replaced."""

    def __init__(self, program: str, folder: Path, port: int, replicas: Sequence[Replica]) -> None:
        text = (DEPLOY / "haproxy.cfg").read_text().replace(f"bind :{PORT}", f"bind 127.0.0.1:{port}")
        for replica in replicas:
            text = text.replace(f" {replica.name}:{PORT}", f" 127.0.0.1:{replica.port}")
        # A file beside it opens the socket that says how the replicas are.
        self._socket, self._log = folder / "haproxy.sock", folder / "haproxy.log"
        shipped, beside = folder / "haproxy.cfg", folder / "stats.cfg"
        shipped.write_text(text)
        beside.write_text(f"global\n    stats socket {self._socket} mode 600 level user\n")
        self.url = f"http://127.0.0.1:{port}"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program, "-db", "-f", shipped, "-f", beside],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    async def health(self) -> dict[str, Health]:
        """Each replica by its name."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(b"show stat\n")
        text = (await reader.read()).decode().removeprefix("# ")
        writer.close()
        keys, *rows = (line.split(",") for line in text.splitlines() if line)
        found = (dict(zip(keys, row, strict=True)) for row in rows)
        return {
            each["svname"]: Health(each["status"], int(each["hrsp_2xx"] or 0))
            for each in found
            if each["pxname"] == "replicas" and each["svname"] != "BACKEND"
        }

    async def until_all_up(self, names: Sequence[str], seconds: float) -> bool:
        """Whether all replicas are up within that time."""
        deadline = monotonic() + seconds
        while monotonic() < deadline:
            with suppress(OSError):
                health = await self.health()
                if {name for name, each in health.items() if each.status == "UP"} == set(names):
                    return True
            if self._process.poll() is not None:
                what = f"HAProxy ended with {self._process.returncode}"
                raise RuntimeError(f"{what}: {_end_of(self._log)}")
            await asyncio.sleep(0.1)
        return False

    def statuses(self) -> list[tuple[str, int]]:
        """The server and the HTTP status of each line of its log."""
        found = re.findall(r" replicas/(\S+) [-\d/+]+ (-?\d+) ", self._log.read_text())
        return [(server, int(status)) for server, status in found]

    def close(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
