"""What a server asks of its client: the caller is asked, nobody at a terminal is, and no input is read."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp_types import ElicitResult
from support.asked import asked_client
from support.curious_server import COMMAND
from support.live import ERAS, tool_call, write_project
from support.served import Served, text_of
from support.terminal import needs_tmux, terminal
from support.waiting import until

FORM = {
    "mode": "form",
    "message": "Your password?\x1b]52;c;cm0=\x07",
    "requestedSchema": {"type": "object", "properties": {"password": {"type": "string"}}},
}
URL = {
    "mode": "url",
    "message": "Log in",
    "url": "https://login.example.com/",
    "elicitationId": "4711",
}
READER = '''
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("desk")
try:
    READ = input("token? ")
except EOFError:
    READ = "nothing to read"


def read_input() -> str:
    """Read a line of standard input."""
    try:
        return "read " + input("answer? ")
    except EOFError:
        return "nothing to read"


@fast.agent(
    name="desk",
    instruction="You are desk.",
    function_tools=[read_input],
    servers=["older", "newer"],
    human_input=True,
)
async def main() -> None: ...


Path(__file__).with_name("read.txt").write_text(READ)
'''


def servers(**more: Any) -> dict[str, Any]:
    """One curious server per protocol version."""
    entry = {"command": sys.executable, "args": [COMMAND], **more}
    return {
        "mcp": {
            "servers": {
                "older": {**entry, "protocol_mode": "legacy"},
                "newer": {**entry, "protocol_mode": "modern"},
            }
        }
    }


async def called(desk: Client, tool: str, arguments: Any) -> str:
    """The result of a tool that an agent calls."""
    message = tool_call(tool, **arguments)
    result = await desk.call_tool("send_message", {"message": message})
    return text_of(result).rpartition("\n")[2]


async def asked(desk: Client, server: str, method: str, params: Any, times: int = 1) -> Any:
    """What the client of a curious server answered it."""
    call = {"method": method, "params": params, "times": times}
    return json.loads(await called(desk, f"{server}__ask", call))


@contextmanager
def in_terminal(root: Path) -> Iterator[tuple[Served, int, int]]:
    """`pallas --serve` with a terminal as its three streams; the terminal's two ends."""
    ours, theirs = pty.openpty()
    log = root.parent / "terminal.log"
    process = subprocess.Popen(
        [sys.executable, "-m", "pallas.server", "--serve", "--project", str(root)],
        env={**os.environ, "PALLAS_LOG_FILE": str(log), "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    try:
        yield Served(root, log, process), ours, theirs
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        os.close(theirs)


def unread(terminal: int) -> int:
    """Bytes that were typed into a terminal and that no program has read."""
    found: int = struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, b"\0" * 4))[0]
    return found


def shown(terminal: int) -> bytes:
    """What was written to a terminal since the last look."""
    os.set_blocking(terminal, False)
    written = b""
    with suppress(BlockingIOError):
        while piece := os.read(terminal, 65_536):
            written += piece
    return written


@pytest.mark.slow
async def test_a_fleet_in_a_terminal_opens_no_form_and_reads_no_key(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", {"desk": READER}, config=servers())
    typed = b"secret words\n"
    with in_terminal(root) as (fleet, ours, theirs):
        before = termios.tcgetattr(theirs)
        os.write(ours, typed)
        screen = bytearray()

        def ready() -> bool:
            assert fleet.process.poll() is None, screen.decode()
            screen.extend(shown(ours))
            return b"running" in screen

        await until(ready, timeout=60)
        assert (root / "agents" / "read.txt").read_text() == "nothing to read"
        for era in ERAS:
            seen: list[Any] = []

            async def refuse(params: Any, seen: list[Any] = seen) -> ElicitResult:
                seen.append(params)
                return ElicitResult(action="decline")

            async with asked_client(fleet.url("desk"), era, refuse) as desk:
                for server in ("older", "newer"):
                    for params in (FORM, URL):
                        (answer,) = await asked(desk, server, "elicitation/create", params)
                        assert answer["action"] == "decline", (server, params, answer)
                assert "\x1b" not in "".join(each.message for each in seen)
                assert await called(desk, "read_input", {}) == "nothing to read"
                form = {"message": "Which?", "fields": [{"name": "which", "type": "text"}]}
                assert "declined" in await called(desk, "__human_input", form)
                assert len(seen) == 5  # the caller is asked, and nobody at the terminal
        assert unread(theirs) == len(typed)
        assert termios.tcgetattr(theirs) == before
        os.write(ours, b"\x03")
        assert await fleet.ended() == 0


@pytest.mark.slow
@needs_tmux
@pytest.mark.pty
async def test_an_agent_reads_no_key_of_the_workbench(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project", {"desk": READER}, config=servers())
    log, home = tmp_path / "pallas.log", tmp_path / "config"
    environment = {"PALLAS_LOG_FILE": str(log), "XDG_CONFIG_HOME": str(home)}
    command = f"{sys.executable} -m pallas.server dev {root}; echo left with $?"
    with terminal(command, environment=environment) as screen:
        read = await until((root / "agents" / "read.txt").read_text, timeout=60)
        assert read == "nothing to read"
        screen.until("Write to desk")
        screen.type("***CALL_TOOL read_input {}")
        screen.keys("Enter")
        screen.until("nothing to read")
        screen.keys("C-q")
        screen.until("left with 0")
