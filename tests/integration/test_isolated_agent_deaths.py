"""A process of an agent's own may end in any way at any moment: its runs fail in words, nothing else does."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from support.live import agent_module, ask, client, running, tool_call, write_project
from support.pallas_process import below
from support.waiting import until

from pallas.config import load_project
from pallas.executors import ExecutorTurn, TurnResult
from pallas.executors.ipc import child_connection, child_process
from pallas.executors.process import process_executor
from pallas.executors.process.agent_messages import HistoryPart
from pallas.executors.process.process_executor import ProcessExecutor
from pallas.model import Event, Fault, FaultType, Message, ToolEvent

pytestmark = pytest.mark.usefixtures("forked_children")

TOOLS = '''
import asyncio
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("frail")
hoard = []


async def die(how: str) -> str:
    """End this process."""
    print("about to die:", how, file=sys.stderr, flush=True)
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "leave":
        sys.exit(5)
    elif how == "abort":
        os.abort()
    elif how == "babble":
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                family = socket.socket(fileno=os.dup(number)).family
            except OSError:
                continue
            if family == socket.AF_UNIX:
                os.write(number, b"\\xff" * 64)
        await asyncio.sleep(600)
    elif how == "hang up":
        os.closerange(3, 256)
        time.sleep(600)
    return "survived"


async def hog(size: int) -> str:
    """Take all memory there is, and keep it."""
    taken = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + size, taken[1]))
    for piece in (1 << 16, 1 << 10, 1 << 6):
        try:
            while True:
                hoard.append(bytearray(piece))
        except MemoryError:
            pass
    return "nothing left"


async def block(seconds: float) -> str:
    """Hold up the loop."""
    Path("blocked").touch()
    time.sleep(seconds)
    return "awake"


async def leave_behind() -> str:
    """Start programs that want to outlive everything."""
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    found = [subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True).pid for _ in range(2)]
    return " ".join(map(str, found))


@fast.agent(
    name="frail",
    instruction="You are frail.",
    servers=["echo"],
    function_tools=[die, hog, block, leave_behind],
)
async def main() -> None: ...
'''
# A server that neither the end of its input nor SIGTERM ends.
STUBBORN = '''
import signal, sys, threading, time
from stdio_server import StdioServer

signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = StdioServer("echo")

@server.tool()
def slow(text: str) -> str:
    """Take a minute."""
    time.sleep(60)
    return "slow"

try:
    server.run()
finally:
    time.sleep(1000)
'''
ECHO = {"mcp": {"servers": {"echo": {"command": sys.executable, "args": ["stubborn.py"]}}}}


def project(root: Path, **agents: str | None) -> Path:
    return write_project(
        root,
        {"frail": TOOLS, **agents},
        config=ECHO,
        keys={"frail": {"isolation": "process", "restart": "never"}},
        files={"stubborn.py": STUBBORN},
    )


class Heard:
    """What an executor's runs said."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.failed: list[str] = []

    def started(self, tool: str, count: int = 1) -> Callable[[], bool]:
        def enough() -> bool:
            calls = [e for e in self.events if isinstance(e, ToolEvent) and e.tool == tool]
            return sum(each.phase == "started" for each in calls) >= count

        return enough


@asynccontextmanager
async def frail(root: Path) -> AsyncIterator[tuple[ProcessExecutor, Heard]]:
    """The agent's executor, started, in this loop and without a fleet."""
    loaded = load_project(project(root), {**os.environ})
    executor, heard = ProcessExecutor(loaded, loaded.agents["frail"]), Heard()
    executor.when_failed(heard.failed.append)
    try:
        await executor.load()
        await executor.start()
        yield executor, heard
    finally:
        await executor.close(3.0)


def run(executor: ProcessExecutor, heard: Heard, text: str, **more: Any) -> asyncio.Task[TurnResult]:
    number = f"run-{len(asyncio.all_tasks())}"
    return asyncio.create_task(executor.run(ExecutorTurn(number, "frail", text, **more), heard.events.append))


type Started = Callable[[], list[psutil.Process]]


@pytest.fixture
def started() -> Iterator[Started]:
    """The processes that the test started and that still run; they are killed at its end."""
    before = {each.pid for each in below()}

    def found() -> list[psutil.Process]:
        return [each for each in below() if each.pid not in before]

    yield found
    for each in found():
        with suppress(psutil.NoSuchProcess):
            each.kill()


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("segfault", "ended by SIGSEGV"),
        ("abort", "ended by SIGABRT"),
        ("exit", "ended with exit status 3"),
        ("leave", "ended with exit status 5"),
        ("kill", "ended by SIGKILL"),
        ("babble", "was ended, because it sent an invalid message"),
        ("hang up", "was ended, because it closed its channel"),
    ],
)
async def test_all_runs_in_flight_are_told_how_it_ended_and_nothing_is_left(
    tmp_path: Path,
    how: str,
    told: str,
    started: Started,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # How it ended is known when all of it is gone; the one that only hangs up never is.
    monkeypatch.setattr(child_connection, "_HUNG_UP_TIMEOUT_S", 0.1 if how == "hang up" else 90.0)
    monkeypatch.setattr(child_process, "_READ_TIMEOUT_S", 90.0)
    async with frail(tmp_path) as (executor, heard):
        pids = [each.pid for each in started()]
        assert executor.pid in pids
        others = [run(executor, heard, tool_call("echo__slow", text="x")) for _ in range(2)]
        await until(heard.started("slow", 2))
        runs = [run(executor, heard, tool_call("die", how=how)), *others]
        for each in runs:
            with pytest.raises(Fault) as caught:
                await asyncio.wait_for(each, 90)
            assert caught.value.type is FaultType.TRANSPORT
            assert caught.value.retryable
            assert caught.value.message.startswith(f"frail: its process {told}")
        await until(lambda: heard.failed)
        assert [said.startswith(f"its process {told}") for said in heard.failed] == [True]
        await until(lambda: not [pid for pid in pids if alive(pid)])
        assert executor.pid is None
        with pytest.raises(Fault, match=told):
            await run(executor, heard, "hello")
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR and told in each.message]
    assert f"about to die: {how}" in record.__dict__["stderr"]
    assert len(heard.failed) == 1


@pytest.mark.slow
async def test_want_of_memory_is_that_process_s_alone(tmp_path: Path) -> None:
    async with frail(tmp_path) as (executor, heard):
        with pytest.raises(Fault, match=r"its process (ran out of memory|ended)") as caught:
            # What an answer needs may be found in gaps: then the next one has fewer.
            for size in (30_000_000, *[0] * 20):
                await asyncio.wait_for(run(executor, heard, tool_call("hog", size=size)), 90)
        assert caught.value.retryable
        await until(lambda: heard.failed)


@pytest.mark.slow
async def test_whatever_an_agent_started_ends_with_it(tmp_path: Path) -> None:
    async with frail(tmp_path) as (executor, heard):
        result = await run(executor, heard, tool_call("leave_behind"))
        pids = [int(word) for word in re.findall(r"\d+", result.texts[-1])]
        assert len(pids) == 2
        assert all(map(alive, pids))
        assert executor.pid is not None
        os.kill(executor.pid, signal.SIGKILL)
        await until(lambda: not any(map(alive, pids)))


@pytest.mark.slow
async def test_a_loop_that_does_not_react_to_a_cancel_is_ended_with_its_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_executor, "CANCEL_TIMEOUT_S", 0.5)
    async with frail(tmp_path) as (executor, heard):
        other = run(executor, heard, tool_call("echo__slow", text="x"))
        await until(heard.started("slow"))
        blocked = run(executor, heard, tool_call("block", seconds=600))
        await until((tmp_path / "blocked").exists)
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(blocked, 90)
        with pytest.raises(Fault, match="did not react to a cancel"):
            await asyncio.wait_for(other, 90)
        assert executor.pid is None


@pytest.mark.slow
async def test_an_agent_that_blocks_its_loop_delays_nobody_else_and_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    root = project(tmp_path, sturdy=None)
    async with running(root) as fleet, client(fleet, "frail") as asking, client(fleet, "sturdy") as other:
        blocked = asyncio.create_task(ask(asking, tool_call("block", seconds=600)))
        events = lambda: fleet.hub.since(0, 20_000).events  # noqa: E731
        first = await until(lambda: [e for e in events() if isinstance(e, ToolEvent)])
        await until((tmp_path / "blocked").exists)
        for number in range(20):
            assert str(number) in await ask(other, str(number))
        assert not blocked.done()
        assert not (await other.call_tool("get_health", {})).is_error
        assert not (await asking.call_tool("get_health", {})).is_error
        # Its stack is in the log while it blocks, and that does not end it.
        said = lambda: [r.getMessage() for r in caplog.records if r.name == "pallas.agents.frail"]  # noqa: E731
        await until(lambda: any("in block" in line for line in said()), timeout=60)
        pid = fleet.agents[0].snapshot().pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(AssertionError, match="ended by SIGKILL"):
            await blocked
        assert first[0].agent == "frail"
        assert "still here" in await ask(other, "still here")


@pytest.mark.slow
async def test_a_process_may_end_while_it_loads(tmp_path: Path, started: Started) -> None:
    root = write_project(
        tmp_path,
        {"frail": "import os, sys\nprint('no reason', file=sys.stderr, flush=True)\nos._exit(7)\n"},
        keys={"frail": {"isolation": "process"}},
    )
    loaded = load_project(root, {**os.environ})
    executor = ProcessExecutor(loaded, loaded.agents["frail"])
    # Its caller adds its name, and knows when to try again.
    with pytest.raises(
        Fault, match=r"^its process ended with exit status 7; the last on its stderr: no reason$"
    ) as caught:
        await executor.load()
    assert caught.value.retryable
    await executor.close(3.0)
    await until(lambda: not started())


@pytest.mark.slow
async def test_a_mistake_in_the_code_is_told_with_its_line_and_the_traceback(
    tmp_path: Path, started: Started
) -> None:
    root = write_project(
        tmp_path,
        {"frail": "import os\n\ndef lay():\n    raise ValueError('an egg')\n\nlay()\n"},
        keys={"frail": {"isolation": "process"}},
    )
    async with running(root) as fleet:
        agent = fleet.agents[0].snapshot()
    assert "agents/frail.py:4: ValueError: an egg" in agent.error.splitlines()[0]
    assert 'frail.py", line 6, in <module>' in agent.error
    await until(lambda: not started())


@pytest.mark.slow
@pytest.mark.parametrize("parked", [False, True])
async def test_one_that_ended_starts_again_with_the_code_that_it_was_loaded_with(
    tmp_path: Path, parked: bool
) -> None:
    async with frail(tmp_path) as (executor, heard):
        first = await run(executor, heard, "one", lease="talk")
        pid, info = executor.pid, executor.info
        assert pid is not None
        if parked:
            await executor.park(90.0)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: executor.pid is None)
        if not parked:
            await until(lambda: heard.failed)
            await executor.park(90.0)
        # Since then somebody has saved what is no Python.
        (tmp_path / "agents" / "frail.py").write_text("this is no Python")
        await executor.start()
        assert executor.pid not in (None, pid)
        assert executor.info == info
        again = await run(executor, heard, "two", lease="talk", history=first.messages)
        assert again.texts == ("two",)
        assert len(heard.failed) == (0 if parked else 1)
        # And once more: it is told again.
        os.kill(executor.pid or 0, signal.SIGKILL)
        await until(lambda: len(heard.failed) == (1 if parked else 2))


@pytest.mark.slow
async def test_closing_at_any_moment_leaves_nothing(tmp_path: Path, started: Started) -> None:
    root = project(tmp_path)
    loaded = load_project(root, {**os.environ})
    early = ProcessExecutor(loaded, loaded.agents["frail"])
    loading = asyncio.create_task(early.load())
    await until(started)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    await early.close(0.1)
    await until(lambda: not started())
    blocked = ProcessExecutor(loaded, loaded.agents["frail"])
    heard = Heard()
    await blocked.load()
    await blocked.start()
    asked = run(blocked, heard, tool_call("block", seconds=600))
    await until((tmp_path / "blocked").exists)
    # One that does not react is not waited for, by a patient caller either.
    async with asyncio.timeout(120):
        await asyncio.gather(blocked.close(600.0), blocked.close(0.5))
    with pytest.raises(Fault):
        await asked
    await until(lambda: not started())
    with pytest.raises(Fault, match="loaded already"):
        await blocked.load()


@pytest.mark.asyncio(loop_scope="class")
class TestOneThatLives:
    """What leaves the process of an agent as it was."""

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    async def one(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[tuple[ProcessExecutor, Heard]]:
        """Its executor, and what all its runs said."""
        async with frail(tmp_path_factory.mktemp("lives")) as made:
            yield made

    @pytest.mark.slow
    async def test_a_cancelled_run_is_over_there_too_and_the_process_goes_on(
        self, one: tuple[ProcessExecutor, Heard]
    ) -> None:
        executor, heard = one
        pid = executor.pid
        for _ in range(3):
            heard.events.clear()
            slow = run(executor, heard, tool_call("echo__slow", text="x"), lease="cancelled")
            await until(heard.started("slow"))
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(slow, 90)
            # What was under way is told as ended before the run is over.
            assert [e.phase for e in heard.events if isinstance(e, ToolEvent)] == ["started", "failed"]
        assert "hello" in (await run(executor, heard, "hello", lease="cancelled")).texts
        assert executor.pid == pid
        assert heard.failed == []

    @pytest.mark.slow
    async def test_a_parked_process_lets_go_of_its_servers_and_starts_again(
        self, one: tuple[ProcessExecutor, Heard]
    ) -> None:
        executor, heard = one
        first = await run(executor, heard, "one", lease="parked")
        pid, before = executor.pid, len(below())
        await executor.park(90.0)
        await until(lambda: len(below()) < before)
        await executor.start()
        assert executor.pid == pid
        again = await run(executor, heard, "two", lease="parked", history=first.messages)
        assert again.texts == ("two",)

    @pytest.mark.slow
    async def test_a_turn_carries_only_what_the_process_does_not_know(
        self, one: tuple[ProcessExecutor, Heard], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        executor, heard = one
        given: list[int] = []
        assert executor._connection is not None
        send = executor._connection.send

        def counted(message: Any) -> None:
            if isinstance(message, HistoryPart):
                given.append(len(message.messages))
            send(message)

        monkeypatch.setattr(executor._connection, "send", counted)
        history: tuple[Message, ...] = (Message("user", "I am Ada"), Message("assistant", "Hello"))
        for _ in range(4):
            result = await run(executor, heard, "again", lease="talk", history=history)
            history = (*history, *result.messages)
        assert given == [2]  # those that were said elsewhere, once
        assert [each.role for each in history] == ["user", "assistant"] * 5
        # One that it made itself, by way of another conversation.
        await run(executor, heard, "again", lease="other", history=history)
        assert given == [2, 10]
        # Somebody else goes on from the middle.
        await run(executor, heard, "again", lease="talk", history=history[:4])
        assert given == [2, 10]


@pytest.mark.slow
async def test_a_process_of_another_release_is_not_spoken_to(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_project(project(tmp_path), {**os.environ})
    executor = ProcessExecutor(loaded, loaded.agents["frail"])
    monkeypatch.setattr(child_connection, "__version__", "0.0.1")
    with pytest.raises(
        Fault, match=r"runs Pallas .* after this fleet was started with 0.0.1; restart the fleet"
    ) as told:
        await executor.load()
    assert told.value.type is FaultType.CONFIG
    await executor.close(3.0)
    await until(lambda: not started())


@pytest.mark.slow
async def test_starts_and_ends_leave_nothing(tmp_path: Path, started: Started) -> None:
    root = write_project(tmp_path, {"plain": None}, keys={"plain": {"isolation": "process"}})
    loaded = load_project(root, {**os.environ})
    mine = psutil.Process()

    async def cycle() -> None:
        executor, heard = ProcessExecutor(loaded, loaded.agents["plain"]), Heard()
        await executor.load()
        await executor.start()
        assert (await run(executor, heard, "hello")).texts == ("hello",)
        await executor.close(10.0)

    def held() -> tuple[int, int, int]:
        # The loop's own pool of threads grows with what is asked of it at one time.
        threads = [each for each in threading.enumerate() if not each.name.startswith("asyncio_")]
        return mine.num_fds(), len(asyncio.all_tasks()), len(threads)

    await cycle()
    before = held()
    await asyncio.gather(*(cycle() for _ in range(2)))
    await until(lambda: held() == before)
    await until(lambda: not started())


@pytest.mark.slow
async def test_nothing_outlives_a_fleet_that_is_killed(tmp_path: Path) -> None:
    root = project(tmp_path, other=agent_module("other", ("echo",)))
    env = {**os.environ, "PALLAS_LOG_FILE": str(tmp_path / "pallas.log")}
    command = [sys.executable, "-m", "pallas.server", "--serve", "--project", str(root)]
    fleet = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
        command, env=env, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    pids: list[int] = []
    try:
        assert fleet.stdout is not None
        lines: list[str] = []
        while "running" not in (line := await asyncio.to_thread(fleet.stdout.readline)):
            assert line, lines
            lines.append(line)
        pids = [each.pid for each in psutil.Process(fleet.pid).children(recursive=True)]
        named = [" ".join(psutil.Process(pid).cmdline()) for pid in pids]
        assert sum("process.agent_child" in name and "keeper.py" not in name for name in named) == 1
        theirs = [
            pid
            for pid in pids
            if any("keeper.py" in " ".join(each.cmdline()) for each in psutil.Process(pid).parents())
            or "keeper.py" in " ".join(psutil.Process(pid).cmdline())
        ]
        assert len(theirs) == 3  # the keeper, the interpreter, its stdio server
        fleet.kill()
        await until(lambda: not any(map(alive, theirs)))
    finally:
        pids = pids or [each.pid for each in psutil.Process(fleet.pid).children(recursive=True)]
        fleet.kill()
        for pid in pids:  # the other agent's server is deaf
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        fleet.communicate()
