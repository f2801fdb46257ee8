"""Secrets planted everywhere a fleet takes something in, and looked for everywhere it says something."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support import pallas_process
from support.fake_downstreams import FakeDownstream, serving
from support.live import ERAS, agent_module, running, write_project
from support.ports import free_ports
from support.recording import Recorder, recording

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.telemetry.log import close_logging, redact_project, setup_logging

# None has a shape that says what it is: each must be known, or kept out, for its own sake.
BEARER: Final = "inbound-71fd20aa9c"
INBOUND_KEY: Final = "apikey-5c02be8841"
COOKIE: Final = "cookie-93aa04e1d7"
CONFIGURED: Final = "configured-0b7de1f64a"
FROM_ENV: Final = "fromenv-c81e5a3390"
FROM_YAML: Final = "fromyaml-2d94f0b6e5"
CHILD_ENV: Final = "childenv-ee41c7058b"
USERINFO: Final = "userinfo-64d2f8a10c"
RESULT: Final = "result-a0f3395bd2"
ARGUMENT: Final = "argument-1b6ce7740f"
RAISED: Final = "raised-d7750ce219"
PROGRAM_ENV: Final = "programenv-8f60b2d7ce"
PLANTED: Final = (
    BEARER, INBOUND_KEY, COOKIE, CONFIGURED, FROM_ENV, FROM_YAML, CHILD_ENV, USERINFO, RESULT, ARGUMENT,
    RAISED, PROGRAM_ENV,
)  # fmt: skip

LOCAL = f'''
import os, sys
from stdio_server import RefusedError, StdioServer

server = StdioServer("local")
print("started with", os.environ["CHILD_TOKEN"], file=sys.stderr)

@server.tool(structured_output=False)
def fetch(text: str) -> str:
    """A result with a secret."""
    print("fetching", text, file=sys.stderr)
    return "{RESULT}"

@server.tool(structured_output=False)
def refuse(text: str) -> str:
    """An exception whose text holds the server's own secret, and the password of a URL."""
    token = os.environ["CHILD_TOKEN"]
    raise RefusedError(-32000, f"password={RAISED} token={{token}} at http://u:{USERINFO}@db/x")

server.run()
'''
# The user's own code, and a program of the project, that give away what they know when they fail.
BROKEN = """
import os
raise ValueError("cannot log in with " + os.environ["PLANTED_KEY"] + " and " + os.environ["THEIR_PASSWORD"])
"""
NOISY = """
import os, sys
print("my password is", os.environ["NOISY_PASSWORD"], flush=True)
sys.exit("no luck with " + os.environ["NOISY_PASSWORD"])
"""
SCRIPT = f"""
rules:
  - {{when: {{last: user, text: do fetch}}, call: [{{tool: local__fetch, arguments: {{text: {ARGUMENT}}}}}]}}
  - {{when: {{last: user, text: do refuse}}, call: [{{tool: local__refuse, arguments: {{text: x}}}}]}}
  - {{when: {{last: user, text: do note}}, call: [{{tool: rec__note, arguments: {{text: x}}}}]}}
  - {{when: {{last: user, text: do leak}}, call: [{{tool: leaky__go, arguments: {{}}}}]}}
  - {{when: {{last: user, text: do break}}, error: {{status: 401, message: "bad key {FROM_ENV}"}}}}
  - {{when: {{last: tool}}, say: "done"}}
  - {{when: {{last: user}}, say: "heard"}}
"""
ASKED = ("do fetch", "do refuse", "do note", "do leak", "do break", "hello")


async def leaky(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """A handshake-era server that repeats the caller's credential in its error."""
    method, id_ = body.get("method"), body.get("id")
    sent = request.headers.get("authorization", "none")
    version = request.headers.get("mcp-protocol-version", "2025-11-25")
    if request.method != "POST" or version != "2025-11-25":
        return JSONResponse({"jsonrpc": "2.0", "id": id_, "error": {"code": -32000, "message": "no"}}, 400)
    if method == "initialize":
        info = {"name": "leaky", "version": "1"}
        result: dict[str, Any] = {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info,
        }  # fmt: skip
    elif method == "tools/list":
        result = {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        error = {"code": -32001, "message": f"token {sent.removeprefix('Bearer ')} is not known here"}
        return JSONResponse({"jsonrpc": "2.0", "id": id_, "error": error})
    elif id_ is None:
        return Response(status_code=202)
    else:
        result = {}
    return JSONResponse({"jsonrpc": "2.0", "id": id_, "result": result})


@dataclass
class Heard:
    """Everything a fleet said, by where."""

    said: dict[str, str] = field(default_factory=dict)

    def hits(self, secrets: tuple[str, ...] = PLANTED) -> list[tuple[str, str, str]]:
        """Where which secret stands, with what is around it."""
        return [
            (where, secret, text[max(0, text.find(secret) - 200) : text.find(secret) + 60])
            for where, text in self.said.items()
            for secret in secrets
            if secret in text
        ]


def planted_project(root: Path, recorder: Recorder, leak: str, more: dict[str, Any] | None = None) -> Path:
    port, other = free_ports(2)
    write_project(
        root,
        {"desk": agent_module("desk", ("local", "rec", "leaky")), "broken": BROKEN},
        top={
            "scripted": {"script": "model.yaml", "port": port},
            "servers": {
                "noisy": {
                    "command": "python noisy.py",
                    "url": f"http://127.0.0.1:{other}/mcp",
                    "env": {"NOISY_PASSWORD": PROGRAM_ENV},
                }
            },
        },
        config={
            "default_model": "generic.scripted",
            "generic": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "${PLANTED_KEY}"},
            "llm_retries": 0,
            "mcp": {
                "servers": {
                    "local": {"command": "python", "args": ["local.py"], "env": {"CHILD_TOKEN": CHILD_ENV}},
                    "rec": {"url": recorder.url},
                    "leaky": {"url": leak, "forward_inbound_auth": True},
                }
            },
            **(more or {}),
        },
        files={
            "model.yaml": SCRIPT,
            "local.py": LOCAL,
            "noisy.py": NOISY,
            ".env": f"PLANTED_KEY={FROM_ENV}\nTHEIR_PASSWORD={CONFIGURED}\n",
            "fastagent.secrets.yaml": yaml.safe_dump(
                {
                    "openai": {"api_key": FROM_YAML, "base_url": f"http://127.0.0.1:{port}/v1"},
                    "mcp": {"servers": {"rec": {"headers": {"Authorization": "Bearer ${THEIR_PASSWORD}"}}}},
                }
            ),
        },
    )
    for name in (".env", "fastagent.secrets.yaml"):
        (root / name).chmod(0o600)
    return root


@asynccontextmanager
async def downstreams() -> AsyncIterator[tuple[Recorder, str, FakeDownstream]]:
    fake = FakeDownstream(leaky)
    async with recording() as recorder, serving(fake) as origin:
        yield recorder, f"{origin}/mcp", fake


async def visit(urls: dict[str, str], registry: str, heard: Heard) -> None:
    """Call every agent in every way, and keep what the pages around them say."""

    async def told(done: float, total: float | None, message: str | None) -> None:
        heard.said["progress"] = heard.said.get("progress", "") + f"{message}\n"

    headers = {"Authorization": f"Bearer {BEARER}", "X-Api-Key": INBOUND_KEY, "Cookie": f"session={COOKIE}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http:
        for era in ERAS:
            for name, url in urls.items():
                async with Client(streamable_http_client(url, http_client=http), mode=era) as caller:
                    for text in ASKED:
                        asked = {"message": text, "conversation_id": f"{era}-{name}", "stream_text": True}
                        result = await caller.call_tool("send_message", asked, progress_callback=told)
                        heard.said[f"{name} {era} {text}"] = repr(result.content)
                    heard.said[f"{name} {era} health"] = repr(await caller.call_tool("get_health", {}))
        bad = await http.post(urls["desk"], content=f"{{{ARGUMENT}", headers={"host": "evil.example"})
        heard.said["refused"] = bad.text + repr(bad.headers)
        for path in ("/.well-known/mcp/server.json", "/healthz", "/readyz", "/metrics"):
            answer = await http.get(registry + path)
            heard.said[path] = answer.text + repr(answer.headers)


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PALLAS_LOG_LEVEL", "PALLAS_ROOT_LOG_LEVEL", "PALLAS_LOG_STDERR", "PALLAS_LOG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PLANTED_KEY", FROM_ENV)
    monkeypatch.setenv("THEIR_PASSWORD", CONFIGURED)
    close_logging()
    yield
    close_logging()


def was_used(recorder: Recorder, fake: FakeDownstream) -> None:
    """The secrets were really in play: else nothing could leak."""
    assert {each.bearer for each in recorder.calls()} == {CONFIGURED}
    called = [seen for seen in fake.seen if seen.rpc == "tools/call"]
    assert {seen.headers.get("authorization") for seen in called} == {f"Bearer {BEARER}"}


@pytest.mark.slow
async def test_no_planted_secret_is_in_log_events_metrics_registry_or_health(
    tmp_path: Path, environ: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # PR-36
    monkeypatch.setenv("PALLAS_LOG_LEVEL", "debug")
    heard = Heard()
    log = setup_logging("debug", path=tmp_path / "pallas.log", stderr=True)
    async with downstreams() as (recorder, leak, fake):
        root = planted_project(tmp_path / "project", recorder, leak, {"logger": {"level": "debug"}})
        redact_project(load_project(root))
        async with running(root) as fleet:
            await visit({agent.name: agent.url for agent in fleet.agents}, origin(fleet), heard)
            events = fleet.hub.since(0, 20_000).events
            heard.said["events"] = "\n".join(map(repr, events))
            heard.said["snapshot"] = repr(fleet.snapshot())
            metrics = fleet.metrics.render()
            heard.said["metrics"] = metrics.decode() if isinstance(metrics, bytes) else str(metrics)
        was_used(recorder, fake)
    heard.said["log"] = log.read_text("utf-8")
    heard.said["terminal"] = "".join(capfd.readouterr())
    assert len(events) > 50
    assert "pallas.forward.trace" in heard.said["log"]
    assert "cannot log in with [redacted] and [redacted]" in heard.said["snapshot"]
    assert "cannot log in" not in heard.said["broken legacy health"]
    assert "no luck with [redacted]" in heard.said["snapshot"]
    assert "local/refuse: failed" in heard.said["progress"]
    assert "[redacted] is not known here" in heard.said["log"]
    assert heard.hits() == []


def origin(fleet: Fleet) -> str:
    return fleet.registry_url.removesuffix("/.well-known/mcp/server.json")


@pytest.mark.slow
async def test_a_headless_run_says_none_of_them_on_its_streams_or_in_its_file(tmp_path: Path) -> None:
    # PR-36: every logger at debug, the journal on, and a project that sets its own logger to the console
    heard = Heard()
    async with downstreams() as (recorder, leak, fake):
        more = {"logger": {"type": "console", "level": "debug", "progress_display": True}}
        root = planted_project(tmp_path / "project", recorder, leak, more)
        topology = yaml.safe_load((root / "agents.yaml").read_text())
        log = tmp_path / "pallas.log"
        environ = {
            **os.environ, "PALLAS_LOG_LEVEL": "debug", "PALLAS_ROOT_LOG_LEVEL": "debug",
            "PALLAS_LOG_STDERR": "1", "PALLAS_LOG_FILE": str(log), "NO_PROXY": "*",
        }  # fmt: skip
        process = await pallas_process.start_async(
            "--project", str(root),
            env=environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        said = asyncio.create_task(process.communicate())
        try:
            registry = f"http://127.0.0.1:{topology['registry_port']}"
            await ready(registry)
            urls = {
                name: f"http://127.0.0.1:{agent['port']}/mcp" for name, agent in topology["agents"].items()
            }
            await visit(urls, registry, heard)
        finally:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(30):
                out, err = await said
        was_used(recorder, fake)
    heard.said |= {"stdout": out.decode(), "stderr": err.decode(), "log": log.read_text("utf-8")}
    records = [json.loads(line) for line in heard.said["log"].splitlines()]
    assert {record["level"] for record in records} >= {"DEBUG", "INFO", "ERROR"}
    # PR-29, PR-30: with two agents, every hook told once, in the file
    told = [record["hook"] for record in records if record["message"].startswith("installed hook")]
    assert {"bounded-parts", "sampling.usage", "log"} <= set(told)
    assert len(told) == len(set(told))
    assert "running" in heard.said["stdout"]
    assert '"logger": "pallas.forward.trace"' in heard.said["stderr"]
    assert heard.hits() == []


async def ready(registry: str) -> None:
    """Until the fleet says that it is up."""
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:

        async def asked() -> bool:
            try:
                return (await http.get(f"{registry}/readyz")).status_code == 200
            except httpx2.HTTPError:
                return False

        deadline = asyncio.get_running_loop().time() + 60
        while not await asked():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.05)
