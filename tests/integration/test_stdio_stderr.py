"""What a stdio server says beside the protocol is in the log, and bounded."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.live import agent_module, ask, client, running, write_project
from support.ports import free_ports
from support.waiting import until

from pallas.executors.fastagent.stderr_seam import ASKED, ServerErrors
from pallas.telemetry.log import close_logging, setup_logging

LOUD = """
import os, sys
from stdio_server import StdioServer

mcp = StdioServer("loud")

@mcp.tool()
def shout() -> str:
    print("printed \\x1b[31mred", file=sys.stderr, flush=True)
    os.write(2, b"written\\n")
    return "quiet"

mcp.run()
"""
SCRIPT = """
rules:
  - {when: {last: user}, call: [{tool: loud__shout, arguments: {}}]}
  - {when: {last: tool}, say: "it said: {{ result }}"}
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


def pipe_of(descriptor: int) -> dict[str, str]:
    """What this process has open of the pipe that the descriptor is an end of."""
    named = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    return {number: name for number, name in open_files().items() if name == named}


def still_open(pipe: dict[str, str]) -> bool:
    return bool(pipe.items() & open_files().items())


def open_files() -> dict[str, str]:
    found = {}
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            found[each.name] = str(each.readlink())
    return found


def told(path: Path) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(each["message"], each["source"]) for each in records if each["logger"] == "pallas.servers.loud"]


async def test_what_a_stdio_server_writes_beside_the_protocol_is_in_the_log(
    tmp_path: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ASKED, "1")
    (port,) = free_ports(1)
    root = write_project(
        tmp_path / "project",
        {"desk": agent_module("desk", ("loud",))},
        top={"scripted": {"script": "model.yaml", "port": port}},
        config={
            "default_model": "generic.scripted",
            "generic": {"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "offline"},
            "mcp": {"servers": {"loud": {"command": "python", "args": ["loud.py"]}}},
        },
        files={"model.yaml": SCRIPT, "loud.py": LOUD},
    )
    async with running(root) as fleet, client(fleet, "desk") as desk:
        assert "quiet" in await ask(desk, "shout")
        wanted = [("printed ␛[31mred", "stderr"), ("written", "stderr")]
        await until(lambda: [each for each in told(log_file) if each in wanted] == wanted)


async def test_a_flood_is_counted_and_the_pipe_is_let_go_at_the_end(log_file: Path) -> None:
    errors = ServerErrors("loud")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import sys; sys.stderr.write('x' * 99 + '\\n'); "
        "[sys.stderr.write(f'{n}\\n') for n in range(5000)]; sys.stderr.write('y' * 20_000)",
        stderr=errors,
    )  # fmt: skip
    assert await process.wait() == 0
    both = pipe_of(errors.fileno())
    assert len(both) == 2
    errors.close()
    await until(lambda: not still_open(both))
    lines = [message for message, _ in told(log_file)]
    assert lines[0] == "x" * 99
    assert len(lines) < 1_000
    assert max(map(len, lines)) <= 8_192
