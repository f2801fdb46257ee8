"""`pallas bridge` in a process of its own: JSON-RPC on stdin and stdout, in front of a fleet."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from anyio._backends._asyncio import StreamReaderWrapper, StreamWriterWrapper
from mcp import Client
from mcp.client import stdio
from mcp.client.stdio import StdioServerParameters, stdio_client
from support import pallas_process
from support.bridged import TOOLS, bridged, kind_of, refused, tell
from support.live import ERAS
from support.processes import gone
from support.served import served
from support.waiting import until

HELLO = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"},
}  # fmt: skip


@pytest.fixture(scope="module")
def hands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of agents that need no model."""
    return bridged(tmp_path_factory.mktemp("stdio") / "p", ("upper", "slow", "fails"))


def environment(root: Path, **more: str) -> dict[str, str]:
    """Nothing of this user's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
    log = str(root.parent / "bridge.log")
    return {**kept, "XDG_STATE_HOME": str(root.parent / "state"), "PALLAS_LOG_FILE": log, **more}


def command(root: Path) -> list[str]:
    return ["bridge", "--project", str(root)]


class ForkedBridge:
    """What the SDK's client needs of a process that it started."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.pid = process.pid
        self.stdin, self.stdout = StreamWriterWrapper(process.stdin), StreamReaderWrapper(process.stdout)
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.returncode


@pytest.fixture
def forked_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a client starts a bridge, it is forked."""

    async def start(*, command: str, args: list[str], errlog: Any, env: Any, cwd: Any) -> ForkedBridge:
        return ForkedBridge(
            await pallas_process.start_async(
                *args[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errlog, env=env, cwd=cwd,
                start_new_session=True,
            )
        )  # fmt: skip

    monkeypatch.setattr(stdio, "_create_platform_compatible_process", start)


@asynccontextmanager
async def connected(root: Path, era: str) -> AsyncIterator[Client]:
    """A real client that starts the bridge itself."""
    arguments = ["-m", "pallas.server", *command(root)]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, env=environment(root))
    with (root.parent / "client.err").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors), mode=era) as client:
            yield client


class Raw:
    """The bridge's process, and every line of its stdout."""

    def __init__(self, root: Path) -> None:
        self.process = pallas_process.start(
            *command(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(root),
            start_new_session=True,
        )
        self.lines: list[bytes] = []
        self.errors: list[bytes] = []
        self.readers = [
            threading.Thread(target=lambda: self.lines.extend(self.process.stdout or ()), daemon=True),
            threading.Thread(target=lambda: self.errors.extend(self.process.stderr or ()), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def say(self, *messages: Any) -> None:
        """A line for each; what is no text is written as JSON."""
        assert self.process.stdin is not None
        for each in messages:
            text = each if isinstance(each, str) else json.dumps({"jsonrpc": "2.0", **each})
            self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def found(self, id: Any) -> dict[str, Any] | None:  # noqa: A002
        """The answer to a request, when it is there."""
        documents: list[dict[str, Any]] = [json.loads(line) for line in list(self.lines)]
        return next((each for each in documents if "method" not in each and each["id"] == id), None)

    def open(self, protocol: str) -> None:
        """Begin as a client of that protocol version does."""
        self.protocol = protocol
        if protocol != ERAS[0]:
            self.say(
                {"id": "hello", "method": "initialize", "params": {**HELLO, "protocolVersion": protocol}},
                {"method": "notifications/initialized"},
            )

    def call(self, id: int | str, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: A002
        """A call of a tool, as a client of its protocol version writes it."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if self.protocol == ERAS[0]:
            prefix = "io.modelcontextprotocol"
            params["_meta"] = {
                f"{prefix}/protocolVersion": self.protocol,
                f"{prefix}/clientInfo": HELLO["clientInfo"],
                f"{prefix}/clientCapabilities": {},
            }
        return {"id": id, "method": "tools/call", "params": params}

    def below(self) -> list[int]:
        """The processes below it."""
        return [each.pid for each in psutil.Process(self.process.pid).children(recursive=True)]


@contextmanager
def raw(root: Path) -> Iterator[Raw]:
    bridge = Raw(root)
    try:
        yield bridge
    finally:
        bridge.process.kill()
        bridge.process.wait()
        for reader in bridge.readers:
            reader.join(60)
        for stream in (bridge.process.stdin, bridge.process.stdout, bridge.process.stderr):
            if stream is not None:
                stream.close()


def anew(root: Path) -> tuple[Path, Path]:
    """The files in which the agent ``slow`` notes that it began and that it was cancelled, both empty."""
    notes = root / "slow.began", root / "slow.cancelled"
    for each in notes:
        each.write_text("")
    return notes


def call(id: int, tool: str, **arguments: Any) -> dict[str, Any]:  # noqa: A002
    return {"id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.slow
async def test_a_client_starts_a_fleet_of_its_own_and_works_with_it(hands: Path) -> None:
    # DR-1
    began, cancelled = anew(hands)
    seen: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message or "")

    async with connected(hands, ERAS[0]) as door:
        assert [each.name for each in (await door.list_tools()).tools] == TOOLS
        # The first call waits until the agents are there.
        session = (await tell(door, "sessions_create", agentId="upper"))["sessionId"]
        assert (await tell(door, "bridge_health"))["agents"] == {"total": 3, "ready": 3}
        said = await door.call_tool(
            "sessions_prompt", {"sessionId": session, "prompt": "hello"}, progress_callback=hear
        )
        assert said.structured_content["text"] == "HELLO"
        body = await refused(door, "sessions_create", agentId="zz")
        assert kind_of(body) == ("UPSTREAM", -32002, False)
        assert "unknown tool" in (await refused(door, "nope"))["error"]
        # A call that is cancelled cancels its run.
        working = asyncio.create_task(tell(door, "tasks_delegate", prompt="x", agentId="slow"))
        await until(began.read_text)
        working.cancel()
        await until(cancelled.read_text)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_bridges")
async def test_clients_of_a_project_share_a_fleet_and_one_that_stays_starts_the_next(hands: Path) -> None:
    opened: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    end = asyncio.Event()

    async def first() -> None:
        async with connected(hands, ERAS[0]) as door:
            opened.set_result((await tell(door, "sessions_create", agentId="upper"))["sessionId"])
            await end.wait()

    working = asyncio.create_task(first())
    try:
        mine = await asyncio.wait_for(opened, 60)
        async with connected(hands, ERAS[1]) as stays:
            assert (await tell(stays, "sessions_status", sessionId=mine))["agentId"] == "upper"
            end.set()
            await asyncio.wait_for(working, 30)
            # That fleet has ended with the client that it was started for.
            done = await tell(stays, "tasks_delegate", prompt="still here", agentId="upper")
            assert done["text"] == "STILL HERE"
            said = await tell(stays, "sessions_prompt", sessionId=mine, prompt="this too")
            assert said["text"] == "THIS TOO"
    finally:
        end.set()
        await asyncio.wait({working}, timeout=30)


@pytest.mark.slow
async def test_stdout_holds_json_rpc_alone_whatever_is_printed_or_sent(hands: Path) -> None:
    # DR-1
    began, cancelled = anew(hands)
    with raw(hands) as bridge:
        bridge.say(
            {"id": "first", "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            call(2, "tasks_delegate", prompt="hello", agentId="upper"),
            "this is not JSON",
            "[]",
            "",
            '{"jsonrpc": "2.0", "id": true, "method": "ping"}',
            "x" * (9 * 1024 * 1024),
            {"id": 3, "method": "no/such"},
            {"id": "tools", "method": "tools/list"},
        )
        answer = await until(lambda: bridge.found(2), timeout=60)
        assert answer["result"]["structuredContent"]["text"] == "HELLO"
        assert (await until(lambda: bridge.found(3)))["error"]["code"] == -32601
        listed = await until(lambda: bridge.found("tools"))
        assert [each["name"] for each in listed["result"]["tools"]] == TOOLS
        assert bridge.found("first")["result"]["serverInfo"]["name"] == "bridge"  # type: ignore[index]
        bridge.say(call(5, "tasks_delegate", prompt="x", agentId="slow"))
        await until(began.read_text)
        bridge.say({"method": "notifications/cancelled", "params": {"requestId": 5}})
        await until(cancelled.read_text)
        below = bridge.below()
        bridge.say(call(4, "bridge_health"))
        assert (await until(lambda: bridge.found(4)))["result"]["isError"] is False
        assert bridge.process.stdin is not None
        bridge.process.stdin.close()
        await until(lambda: bridge.process.poll() is not None)
        assert bridge.process.returncode == 0
        for reader in bridge.readers:
            reader.join(60)
        documents = [json.loads(line) for line in bridge.lines]
        assert all(each["jsonrpc"] == "2.0" for each in documents)
        wrong = [each["error"]["code"] for each in documents if "error" in each and each["id"] is None]
        assert wrong == [-32700, -32600, -32600, -32600]
        assert b"".join(bridge.errors).count(b"NOISE") >= 4
        assert all(gone(pid) for pid in below)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["2025-06-18", ERAS[0]])
async def test_neither_a_cancelled_request_nor_one_that_the_end_of_stdin_cancels_is_answered(
    hands: Path, protocol: str
) -> None:
    began, cancelled = anew(hands)
    with raw(hands) as bridge:
        bridge.open(protocol)
        bridge.say(bridge.call("slow", "tasks_delegate", prompt="x", agentId="slow"))
        await until(began.read_text, timeout=60)
        bridge.say({"method": "notifications/cancelled", "params": {"requestId": "slow"}})
        await until(cancelled.read_text)
        began, cancelled = anew(hands)
        bridge.say(
            bridge.call(2, "bridge_health"), bridge.call(3, "tasks_delegate", prompt="x", agentId="slow")
        )
        await until(began.read_text)
        assert await until(lambda: bridge.found(2)) is not None
        below = bridge.below()
        assert bridge.process.stdin is not None
        bridge.process.stdin.close()
        await until(lambda: bridge.process.poll() is not None)
        assert bridge.process.returncode == 0
        assert cancelled.read_text() == began.read_text()
        for reader in bridge.readers:
            reader.join(60)
        assert bridge.found("slow") is None
        assert bridge.found(3) is None
        assert all(gone(pid) for pid in below)


@pytest.mark.slow
async def test_the_end_of_stdin_waits_for_no_agent_that_goes_on_when_cancelled(tmp_path: Path) -> None:
    root = bridged(tmp_path / "p", ("stubborn",))
    began, _ = anew(root)
    with raw(root) as bridge:
        bridge.open(ERAS[0])
        bridge.say(bridge.call(2, "tasks_delegate", prompt="x", agentId="stubborn"))
        await until(began.read_text, timeout=60)
        below = bridge.below()
        assert bridge.process.stdin is not None
        bridge.process.stdin.close()
        await until(lambda: bridge.process.poll() is not None)
        assert bridge.process.returncode == 0
        await until(lambda: all(gone(pid) for pid in below))


@pytest.mark.slow
async def test_a_fleet_that_stays_is_told_when_stdin_ends(tmp_path: Path) -> None:
    root = bridged(tmp_path / "p", ("slow",), top={"bind": "127.0.0.1"})
    with served(root, XDG_STATE_HOME=str(tmp_path / "state")) as fleet:
        await until(lambda: ready(fleet.registry), timeout=60)
        for protocol in ("2025-06-18", ERAS[0]):
            began, cancelled = anew(root)
            with raw(root) as bridge:
                bridge.open(protocol)
                bridge.say(bridge.call(2, "tasks_delegate", prompt="x", agentId="slow"))
                await until(began.read_text, timeout=60)
                assert bridge.process.stdin is not None
                bridge.process.stdin.close()
                await until(lambda: bridge.process.poll() is not None)
                await until(cancelled.read_text)
                assert bridge.found(2) is None


@pytest.mark.slow
async def test_a_signal_ends_the_fleet_and_what_runs_in_it(hands: Path) -> None:
    began, cancelled = anew(hands)
    with raw(hands) as bridge:
        bridge.say(
            {"id": 1, "method": "initialize", "params": HELLO},
            {"method": "notifications/initialized"},
            call(2, "tasks_delegate", prompt="x", agentId="slow"),
        )
        await until(began.read_text, timeout=60)
        below = bridge.below()
        bridge.process.send_signal(signal.SIGTERM)
        await until(lambda: bridge.process.poll() is not None)
        assert bridge.process.returncode == 0
        assert cancelled.read_text() == began.read_text()
        assert all(gone(pid) for pid in below)


def test_a_project_with_mistakes_is_said_on_stderr(tmp_path: Path) -> None:
    root = bridged(tmp_path / "p", ("upper",))
    (root / "agents.yaml").write_text("agents: [1")
    done = pallas_process.run(
        *command(root), input=b"", capture_output=True, timeout=60, check=False, env=environment(root)
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"agents.yaml" in done.stderr
    assert b"Traceback" not in done.stderr


async def test_a_fleet_that_cannot_be_started_says_why_to_every_call(tmp_path: Path) -> None:
    # DR-21
    root = bridged(tmp_path / "p", ("upper",))
    (root / "model.yaml").write_text("rules: [{sai: x}]")
    with raw(root) as bridge:
        bridge.say({"id": 1, "method": "initialize", "params": HELLO}, call(2, "bridge_health"))
        refusal = (await until(lambda: bridge.found(1), timeout=60))["error"]
        assert (refusal["code"], refusal["data"]["type"]) == (-32004, "CONFIG")
        assert "model.yaml" in refusal["message"]
        result = (await until(lambda: bridge.found(2)))["result"]
        assert result["isError"] is True
        assert json.loads(result["content"][0]["text"])["data"] == {"type": "CONFIG", "retryable": False}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_bridges")
async def test_a_fleet_that_runs_is_spoken_to_and_may_start_anew(tmp_path: Path) -> None:
    root = bridged(tmp_path / "p", ("upper",), top={"bind": "127.0.0.1"})
    state = str(tmp_path / "state")
    async with connected_twice(root, state) as doors:
        for door in doors:
            # Nobody answers: the fleet that was spoken to has ended.
            body = await refused(door, "tasks_delegate", prompt="x")
            assert kind_of(body) == ("TRANSPORT", -32000, True)
            assert "start it again" in body["error"]
        with served(root, XDG_STATE_HOME=state) as fleet:
            await until(lambda: ready(fleet.registry), timeout=60)
            for door in doors:
                assert (await tell(door, "tasks_delegate", prompt="again"))["text"] == "AGAIN"


@asynccontextmanager
async def connected_twice(root: Path, state: str) -> AsyncIterator[tuple[Client, Client]]:
    """A client of each era, connected while a fleet ran that has ended since."""
    with served(root, XDG_STATE_HOME=state) as fleet:
        await until(lambda: ready(fleet.registry), timeout=60)
        modern, legacy = connected(root, ERAS[0]), connected(root, ERAS[1])
        doors = await modern.__aenter__(), await legacy.__aenter__()
        for door in doors:
            assert (await tell(door, "tasks_delegate", prompt="hello"))["text"] == "HELLO"
        # It is that very fleet: a session of one client's is there for whoever is nobody as well.
        session = (await tell(doors[0], "sessions_create"))["sessionId"]
        assert (await tell(doors[1], "sessions_status", sessionId=session))["agentId"] == "upper"
        fleet.send(signal.SIGTERM)
        await fleet.ended()
    try:
        yield doors
    finally:
        await legacy.__aexit__(None, None, None)
        await modern.__aexit__(None, None, None)


def ready(registry: str) -> bool:
    """Whether a fleet takes runs."""
    import httpx2

    return httpx2.get(f"{registry}/readyz", trust_env=False, timeout=60).status_code == 200
