"""What a fleet and its client say while the fleet is starting."""

import asyncio
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx2
import pytest
from support import pallas_process
from support.live import agent_module, running, write_project
from support.ports import free_ports
from support.served import served
from support.waiting import until

from pallas.fleet import health_monitor
from pallas.model import Notice

SLOW = """
import pathlib, time
deadline = time.monotonic() + 90
while not pathlib.Path("go").exists() and time.monotonic() < deadline:
    time.sleep(0.05)
""" + agent_module("slow")
SERVER = """
import json, pathlib, sys, time
from http.server import BaseHTTPRequestHandler, HTTPServer

deadline = time.monotonic() + 90
while not pathlib.Path("go").exists() and time.monotonic() < deadline:
    time.sleep(0.05)


class Models(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": "good"}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Models).serve_forever()
"""


async def test_a_model_server_that_the_fleet_itself_starts_causes_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    server = {"command": ["python", "models.py", str(port)], "url": f"http://127.0.0.1:{port}/"}
    config = {"default_model": "generic.good", "generic": {"base_url": f"http://127.0.0.1:{port}/v1"}}
    write_project(tmp_path, {"one": None}, top={"servers": {"models": server}}, config=config)
    (tmp_path / "models.py").write_text(SERVER)
    asked = health_monitor.preflight

    async def ask(*args: Any, **options: Any) -> Any:
        try:
            return await asked(*args, **options)
        finally:
            (tmp_path / "go").touch()  # it serves after the first check only

    monkeypatch.setattr(health_monitor, "preflight", ask)
    async with running(tmp_path) as fleet:
        notices = [each.text for each in fleet.hub.since(0).events if isinstance(each, Notice)]
        assert not [text for text in notices if "generic" in text]
        base = fleet.registry_url.partition("/.well-known")[0]
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:

            async def reports() -> Any:
                return (await http.get(f"{base}/healthz")).json()["providers"]

            await until(reports)
            (report,) = await reports()
        assert (report["provider"], report["ok"]) == ("generic", True)


@pytest.mark.slow
async def test_chat_waits_for_an_agent_that_starts_and_says_for_what(tmp_path: Path) -> None:
    write_project(tmp_path, {"slow": SLOW})
    with served(tmp_path) as fleet:
        await until(lambda: fleet.get("/healthz"))
        with pallas_process.start(
            "chat", "slow", "-m", "hello", cwd=tmp_path, stdout=PIPE, stderr=PIPE, text=True
        ) as process:
            try:
                assert process.stderr is not None
                line = await asyncio.to_thread(process.stderr.readline)
                assert line == "waiting for slow: it imports its code\n"
                (tmp_path / "go").touch()
                out, err = await asyncio.to_thread(process.communicate, timeout=120)
            finally:
                process.kill()
        assert (process.returncode, out.strip()) == (0, "hello")
        assert "is started for this call" not in line + err
