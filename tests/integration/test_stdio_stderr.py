"""What a stdio server says beside the protocol is in the log, and bounded."""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, ask, client, running, write_project
from support.offline import offline_model
from support.waiting import until

from pallas.downstreams.server_stderr import ServerErrors
from pallas.fleet.fleet import Fleet
from pallas.model import ToolEvent
from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.server_output import VARIABLE

LOUD = """
import os, sys, traceback
from stdio_server import FailedError, StdioServer

mcp = StdioServer("loud")

@mcp.tool()
def shout() -> str:
    print("printed \\x1b[31mred", file=sys.stderr, flush=True)
    os.write(2, b"written\\n")
    return "quiet"

@mcp.tool()
def fail() -> str:
    print("printed on stdout", flush=True)
    try:
        raise ValueError("the day is wrong")
    except ValueError:
        traceback.print_exc()
        raise FailedError("it did not work") from None

mcp.run()
"""
SCRIPT = """
rules:
  - {when: {last: user, text: fail}, call: [{tool: loud__fail, arguments: {}}]}
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


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def told(path: Path) -> list[tuple[str, str]]:
    return [(each["message"], each["source"]) for each in records(path) if each.get("server") == "loud"]


async def test_what_a_stdio_server_writes_beside_the_protocol_is_in_the_log(
    tmp_path: Path, log_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    servers = {
        "loud": {"command": "python", "args": ["loud.py"]},
        "broken": {"command": "python", "args": ["-c", "import no_such_module"]},
    }
    root = write_project(
        tmp_path / "project",
        {"desk": agent_module("desk", ("loud", "broken"))},
        **offline_model(SCRIPT, config={"mcp": {"servers": servers}}, files={"loud.py": LOUD}),
    )
    async with running(root) as fleet, client(fleet, "desk") as desk:
        how = "its program ended with exit status 1: ModuleNotFoundError: No module named"
        why = f"desk: server broken is missing: cannot be reached ({how}"
        await until(lambda: why in log_file.read_text("utf-8"))
        assert "quiet" in await ask(desk, "shout")
        wanted = [("printed ␛[31mred", "stderr"), ("written", "stderr")]
        await until(lambda: [each for each in told(log_file) if each in wanted] == wanted)
        lines: list[str] = []

        async def hear(_: float, __: float | None, line: str | None) -> None:
            lines.append(line or "")

        result = await desk.call_tool("send_message", {"message": "fail"}, progress_callback=hear)
        assert "it did not work" in str(result.content)
        assert ("printed on stdout", "stdout") in told(log_file)
        assert [each.error for each in failures(fleet)] == ["ValueError: the day is wrong"]
        logged = records(log_file)
        (failed,) = [each for each in logged if each["message"].endswith("loud/fail failed: it did not work")]
        assert (failed["agent"], failed["downstream"], failed["tool"]) == ("desk", "loud", "fail")
        assert failed["exc"].startswith("Traceback (most recent call last):")
        assert failed["exc"].endswith("ValueError: the day is wrong")
        assert not [each for each in logged if each["message"] == "ValueError: the day is wrong"]
        # It is the operator's: the caller hears that the call failed.
        assert "loud/fail: failed" in lines
        assert "ValueError" not in "".join(lines)


def failures(fleet: Fleet) -> list[ToolEvent]:
    events = fleet.hub.since(0).events
    return [each for each in events if isinstance(each, ToolEvent) and each.phase == "failed"]


PLAIN = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
    raise Error: here
KeyError: 'day'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 2, in <module>
shop.errors.OutOfStockError: none left
It failed: unrelated
"""
DRAWN = """\
[11/23/26 20:33:43] ERROR    Tool 'days' raised   server.py:455
                             ╭─ Traceback (most recent call last─╮
                             │ /a.py:1 in days                   │
                             │ ValueError: not this              │
                             ╰───────────────────────────────────╯
                             ValueError: month must be in 1..12
                             The above exception was the cause:
                             ╭─ Traceback (most recent call last─╮
                             ╰───────────────────────────────────╯
                             ToolError: Error executing tool days
"""


@pytest.mark.parametrize(
    ("text", "said", "shown", "count"),
    [
        (PLAIN, "it failed", "shop.errors.OutOfStockError: none left", 2),
        (DRAWN, "Error executing tool days", "ValueError: month must be in 1..12", 2),
        ("Error: no traceback\n", "it failed", "", 0),
    ],
)
async def test_the_exception_is_found_that_says_more_than_the_answer(
    text: str, said: str, shown: str, count: int, log_file: Path
) -> None:
    errors = ServerErrors("loud")
    os.write(errors.fileno(), text.encode())
    assert errors.reader.exception_since(0, said) == shown
    assert errors.reader.count == count
    assert errors.reader.exception_since(count, said) == ""
    errors.close()


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
