"""What a fleet imports until it answers: nothing that its project does not use."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import httpx2
import pytest
import yaml
from mcp import Client
from support.live import agent_module, write_project
from support.waiting import until

# Writes the names of all modules into a file whenever there is none.
TELL = """
import json
import sys
import threading
import time
from pathlib import Path


def tell():
    while True:
        if not Path("modules").exists():
            Path("modules.part").write_text(json.dumps(sorted(sys.modules)))
            Path("modules.part").rename("modules")
        time.sleep(0.02)


threading.Thread(target=tell, daemon=True).start()
"""
UNUSED = (
    "alembic",
    "anthropic",
    "asyncpg",
    "fastapi",
    "google.genai",
    "jwt",
    "openai.types.responses.response",
    "pallas.cli.app",
    "pallas.executors.typed.typed_executor",
    "pallas.messaging.delivery",
    "pallas.payloads",
    "pallas.surfaces.rest.rest_app",
    "prompt_toolkit",
    "sqlalchemy.dialects.postgresql",
    "textual",
    "typer",
)


async def _modules(root: Path) -> set[str]:
    told = root / "modules"
    told.unlink(missing_ok=True)
    await until(told.is_file, timeout=60)
    return set(json.loads(told.read_text()))


@pytest.mark.slow
async def test_a_fleet_of_one_agent_imports_what_it_uses_and_rest_when_that_is_asked(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": TELL + agent_module("one", model="openai.gpt-4.1")})
    (root / "fastagent.config.yaml").write_text(
        "openai: {api_key: none, base_url: 'http://127.0.0.1:9/v1'}\n"
    )
    project = yaml.safe_load((root / "agents.yaml").read_text())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pallas.server", "--project", str(root)),
        cwd=root,
        env={**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(120):
            assert process.stdout is not None
            while b"running" not in (line := await process.stdout.readline()):
                assert line, "it ended"
        for mode in ("2026-07-28", "legacy"):
            url = f"http://127.0.0.1:{project['agents']['one']['port']}/mcp"
            async with Client(url, mode=mode) as client:
                await client.call_tool("get_health", {})
        modules = await _modules(root)
        assert {"openai", "openai.types.chat", "fast_agent", "sqlalchemy"} <= modules
        assert modules.isdisjoint(UNUSED), modules & {*UNUSED}
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{project['registry_port']}/api/v1/agents")
        assert answer.status_code == 401 and answer.json()["data"]["type"], answer.text
        assert "fastapi" in await _modules(root)
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            await process.wait()
