"""What callers of the REST API and of `pallas chat` hear of servers that an agent has to do without."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest
from support import pallas_process
from support.live import agent_module, running, tool_call, write_project
from support.outages import outages


async def chat(root: Path, *arguments: str) -> tuple[int, str, str]:
    """`pallas chat one` on the project: status, stdout and stderr."""
    environment = {**os.environ, "PALLAS_LOG_FILE": str(root / "chat.log")}
    process = await pallas_process.start_async(
        "chat", "one", *arguments, "-p", str(root),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.slow
async def test_rest_and_chat_answer_without_a_server_and_name_it(tmp_path: Path) -> None:
    # PI-12, PI-17
    async with outages("left", "right") as (left, right):
        entries = {each.name: {"url": each.url} for each in (left, right)}
        write_project(
            tmp_path, {"one": agent_module("one", ("left", "right"))}, config={"mcp": {"servers": entries}}
        )
        await right.stop()
        message = tool_call("left__say", text="x")
        async with running(tmp_path, database="memory") as fleet:
            path = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1/agents/one/chat"
            async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
                whole = await http.post(path, json={"message": message})
                streamed = await http.post(path, json={"message": message, "stream": True})
            assert whole.status_code == 200, whole.text
            assert "left:x" in whole.json()["text"]
            assert whole.json()["missingServers"] == {"right": "cannot be reached"}
            assert '"missingServers":{"right":"cannot be reached"}' in streamed.text.replace(": ", ":")
            status, out, err = await chat(tmp_path, "-m", message)
            assert status == 0, err
            assert "left:x" in out
            assert "(answered without the server right: cannot be reached)" in err
