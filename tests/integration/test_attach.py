"""A fleet elsewhere as the workbench holds it: over real HTTP, lost and found again, with every token."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import pytest
from support import pallas_process
from support.control import FULL, READ, Served, serving
from support.fake_fleet import FakeFleet, desk
from support.live import agent_module, write_project
from support.offline import offline_project
from support.ports import free_ports, is_free
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import (
    AgentDetail,
    Event,
    Exchange,
    Fault,
    FaultType,
    FleetState,
    MessageRecord,
    Notice,
    RunFinished,
    RunStarted,
    Step,
    StepAttempt,
    StepDetail,
    StepUsage,
    TokenScope,
    ToolOutcome,
)
from pallas.surfaces.control import token_file
from pallas.telemetry.event_hub import EventHub
from pallas_tui.chat_client import ChatClient
from pallas_tui.remote import fleet_address, fleet_connection, log_mirror
from pallas_tui.remote.control_client import ControlClient
from pallas_tui.remote.fleet_address import as_reached, control_origin, place_of
from pallas_tui.remote.fleet_mirror import EventRing
from pallas_tui.remote.log_mirror import LogMirror
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource, given_token, read_project_env

READ_ONLY = "read-only: this token may only read"


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(fleet_connection, "BACKOFF", (0.05, 0.1))
    # The file of its token tells that a fleet is there: it listens a moment later.
    monkeypatch.setattr(fleet_connection, "FIRST_CONNECTION_S", 60)


@contextmanager
def attached(url: str, token: str = FULL, **more: Any) -> Iterator[RemoteFleet]:
    fleet = RemoteFleet(url, TokenSource(url, token), **more)
    fleet.start()
    try:
        yield fleet
    finally:
        fleet.stop(90)
        assert not fleet._thread.is_alive()


class Seen:
    """Reads the port as the pump does."""

    def __init__(self, fleet: RemoteFleet) -> None:
        self._fleet = fleet
        self._seq = 0
        self.events: list[Event] = []
        self.dropped = 0

    def read(self) -> list[Event]:
        batch = self._fleet.since(self._seq)
        self._seq = batch.next
        self.events += batch.events
        self.dropped += batch.dropped
        return self.events

    def texts(self) -> list[str]:
        return [event.text for event in self.read() if isinstance(event, Notice)]


def notice(text: str) -> Notice:
    return Notice(level="info", text=text)


async def test_the_fleet_is_seen_as_it_is_and_changes_come_by_themselves() -> None:
    async with serving() as served:
        served.fleet.say(notice("one"))
        with attached(served.url) as fleet:
            assert fleet.snapshot().state is FleetState.STARTING
            await until(lambda: fleet.snapshot() == desk())
            assert fleet.can_control
            seen = Seen(fleet)
            await until(lambda: "one" in seen.texts())
            served.fleet.say(notice("two"))
            served.fleet.change("vision", runs_total=9)
            await until(lambda: "two" in seen.texts())
            await until(lambda: fleet.snapshot() == served.fleet.current)
            assert [event.seq for event in seen.events] == sorted({event.seq for event in seen.events})


STEP = StepDetail(
    Step("r1", 1, "model", "m", 1.0, "done", attempts=(StepAttempt(1.0, 200, 0.5),), usage=StepUsage(3, 2)),
    '{"model":"m"}',
    '{"choices":[]}',
    (("content-type", "application/json"),),
)


async def test_what_is_asked_goes_there_and_comes_back() -> None:
    async with serving() as served:
        served.fleet.details["research"] = AgentDetail("research", instruction="Search.")
        served.fleet.wire["r1"] = (Exchange("r1", 1.0, "inbound", "p", "tools/call"),)
        served.fleet.model_steps["r1"] = (STEP,)
        served.fleet.outcome = ToolOutcome(ok=False, content="[]", seconds=1.5, texts=("no",))
        with attached(served.url) as fleet:
            await until(lambda: fleet.can_control)
            await until(lambda: fleet._connection.client)
            assert await fleet.describe("research") == served.fleet.details["research"]
            assert await fleet.exchanges("r1") == served.fleet.wire["r1"]
            assert await fleet.steps("r1") == (STEP.step,)
            assert await fleet.step("r1", 1) == STEP
            outcome = await fleet.call_tool("research", "docs", "search", {"q": [1, None]}, "a-bearer")
            assert outcome == served.fleet.outcome
            assert served.fleet.called == [("research", "docs", "search", {"q": [1, None]}, "a-bearer")]
            fleet.cancel("r1 ?#")
            fleet.control("vision", "restart")
            await until(lambda: served.fleet.cancelled == ["r1 ?#"])
            await until(lambda: served.fleet.controlled == [("vision", "restart")])
            with pytest.raises(Fault, match="Agent not found: engineering") as refused:
                await fleet.describe("engineering")
            assert refused.value.type is FaultType.UPSTREAM
            seen = Seen(fleet)
            fleet.control("nobody", "stop")
            await until(lambda: any("there is no such agent" in text for text in seen.texts()))


async def test_who_may_only_look_is_told_so() -> None:
    async with serving() as served:
        with attached(served.url, READ) as fleet:
            seen = Seen(fleet)
            await until(lambda: READ_ONLY in seen.texts())
            assert fleet.snapshot() == desk()
            assert fleet.attachment is not None
            assert fleet.attachment.access is TokenScope.READ
            assert not fleet.can_control
            fleet.cancel("r1")
            fleet.control("vision", "stop")
            assert seen.texts().count(READ_ONLY) == 3
            with pytest.raises(Fault, match=READ_ONLY) as refused:
                await fleet.call_tool("research", "docs", "search", {})
            assert refused.value.type is FaultType.AUTH
            assert served.fleet.cancelled == served.fleet.controlled == served.fleet.called == []


class Timer:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def late(fleet: RemoteFleet) -> int:
    assert fleet.attachment is not None
    return fleet.attachment.late


async def test_a_fleet_where_nothing_happens_is_current_because_it_sends_comments() -> None:
    timer = Timer()
    async with serving(heartbeat=0.05) as served:
        with attached(served.url, timer=timer) as fleet:
            assert fleet.attachment is None
            await until(lambda: fleet._connection.client)
            for _ in range(2):
                timer.now += 60
                await until(lambda: not late(fleet))


async def test_a_fleet_that_does_not_answer_is_late_by_so_many_seconds_until_it_does() -> None:
    timer = Timer()
    async with serving(heartbeat=3600) as served:
        with attached(served.url, timer=timer) as fleet:
            seen = Seen(fleet)
            await until(lambda: fleet._connection.client)
            served.fleet.say(notice("one"))
            await until(lambda: "one" in seen.texts())
            timer.now += fleet_connection.LATE_S - 1
            assert late(fleet) == 0  # one comment may be on its way
            timer.now += 5
            assert late(fleet) == fleet_connection.LATE_S + 4
            served.fleet.say(notice("two"))
            await until(lambda: late(fleet) == 0)


@pytest.mark.parametrize(
    ("origin", "named", "place"),
    [
        ("http://desk.example:1", None, "desk.example:1"),  # of a version that does not say it
        ("http://127.0.0.1:1", None, "127.0.0.1:1"),
        ("http://127.0.0.1:1", {"host": "here", "user": "ann", "pid": 7}, "this machine (pid 7)"),
        ("http://127.0.0.1:1", {"host": "here", "user": "bob", "pid": 7}, "this machine (pid 7 of bob)"),
        # A tunnel, or a container.
        ("http://127.0.0.1:1", {"host": "desk", "pid": 7}, "desk at 127.0.0.1:1 (pid 7)"),
        ("http://desk.example:1", {"host": "desk", "pid": 7}, "desk.example:1 (pid 7)"),
        ("http://127.0.0.1:1", {"host": "a\x1b[2J", "pid": []}, "a␛[2J at 127.0.0.1:1 (pid [])"),
    ],
)
def test_where_a_fleet_runs_is_said_as_far_as_it_is_known(
    origin: str, named: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_address, "owner", lambda: {"host": "here", "user": "ann", "pid": 1})
    assert place_of(origin, named) == place


async def test_events_go_on_where_the_connection_broke() -> None:
    fleet, (port,) = FakeFleet(), free_ports(1)
    seen_until_cut: list[str]
    async with serving(fleet, port=port, boot="b1") as served:
        url = served.url
        remote = RemoteFleet(url, TokenSource(url, FULL))
        before = time()
        remote.start()
        seen = Seen(remote)
        fleet.say(notice("one"))
        await until(lambda: "one" in seen.texts())
    try:
        await until(lambda: "connection lost" in remote.snapshot().stale)
        assert remote.snapshot().agents == desk().agents  # still shown, and said to be old
        assert remote.attachment is not None
        assert before <= remote.attachment.lost_at <= time()
        seen_until_cut = seen.texts()
        fleet.say(notice("two"), notice("three"))
        with pytest.raises(Fault, match="no connection"):
            await remote.describe("vision")
        async with serving(fleet, port=port, boot="b1"):
            await until(lambda: "three" in seen.texts())
            await until(lambda: not remote.snapshot().stale)
            await until(lambda: remote.attachment is not None and not remote.attachment.lost_at)
            rest = seen.texts()[len(seen_until_cut) :]
            assert [text for text in rest if text in ("one", "two", "three")] == ["two", "three"]
            assert sum("connection lost" in text for text in seen.texts()) == 1
            assert "connected again" in seen.texts()
            assert seen.dropped == 0
    finally:
        remote.stop(10)


async def test_a_fleet_that_was_started_anew_is_followed_from_its_beginning() -> None:
    (port,) = free_ports(1)
    before = FakeFleet()
    async with serving(before, port=port, boot="b1") as served:
        remote = RemoteFleet(served.url, TokenSource(served.url, FULL))
        remote.start()
        seen = Seen(remote)
        before.say(*(notice(f"old {number}") for number in range(50)))
        await until(lambda: "old 49" in seen.texts())
    try:
        after = FakeFleet(replace(desk(), name="anew"))
        after.say(notice("new 0"))
        async with serving(after, port=port, boot="b2"):
            await until(lambda: "new 0" in seen.texts())
            await until(lambda: remote.snapshot() == after.current)
            assert "connected again: the fleet was started again" in seen.texts()
            assert seen.dropped >= 1  # so panes look again at what they took for running
            numbers = [event.seq for event in seen.events]
            assert numbers == sorted(set(numbers))
    finally:
        remote.stop(10)


async def test_what_the_ring_lost_meanwhile_is_counted() -> None:
    fleet, (port,) = FakeFleet(), free_ports(1)
    fleet.hub = EventHub(10)
    async with serving(fleet, port=port, boot="b1") as served:
        remote = RemoteFleet(served.url, TokenSource(served.url, FULL))
        remote.start()
        seen = Seen(remote)
        fleet.say(notice("first"))
        await until(lambda: "first" in seen.texts())
    try:
        fleet.say(*(notice(str(number)) for number in range(30)))
        async with serving(fleet, port=port, boot="b1"):
            await until(lambda: "29" in seen.texts())
            assert seen.dropped == 20
    finally:
        remote.stop(10)


@pytest.mark.parametrize(
    ("token", "says"), [("wrong-token-of-nobody", "not one of this fleet"), ("", "no token")]
)
async def test_a_token_that_is_none_fails_with_what_to_do(token: str, says: str) -> None:
    async with serving() as served:
        with attached(served.url, token) as fleet:
            await until(lambda: fleet.snapshot().state is FleetState.FAILED)
            error = fleet.snapshot().error
            assert says in error
            assert "needs a token" in error
            assert "wrong-token" not in error
            with pytest.raises(Fault):
                await fleet.describe("vision")


async def test_a_token_that_is_no_longer_accepted_is_told_and_nobody_is_blamed_for_asking(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fleet, (port,) = FakeFleet(), free_ports(1)
    folder = token_file.token_folder()
    path = token_file.store_token(FULL, Path("/here"), port)
    async with serving(fleet, port=port, boot="b1") as served:
        remote = RemoteFleet(served.url, TokenSource(served.url))
        remote.start()
        await until(lambda: remote._connection.client)
        path.unlink()
    try:
        async with serving(fleet, port=port, boot="b2"):
            await until(lambda: "needs a token" in remote.snapshot().stale)
            assert "wrong token" not in caplog.text  # looking whether somebody is there is no attempt
            token_file.store_token(FULL, Path("/here"), port, folder)
            await until(lambda: not remote.snapshot().stale)
    finally:
        remote.stop(10)


async def test_an_address_where_nothing_answers_fails_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_connection, "FIRST_CONNECTION_S", 0.2)
    (port,) = free_ports(1)
    with attached(f"http://127.0.0.1:{port}") as fleet:
        await until(lambda: fleet.snapshot().state is FleetState.FAILED)
        assert f"nothing answers at http://127.0.0.1:{port}" in fleet.snapshot().error


async def test_a_port_without_a_control_api_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from support.registries import FakeRegistry

    async with FakeRegistry([]).serving() as origin:
        with attached(control_origin(origin)) as fleet:
            await until(lambda: fleet.snapshot().state is FleetState.FAILED)
            assert "there is no control API" in fleet.snapshot().error
            assert "PALLAS_CONTROL_TOKEN" in fleet.snapshot().error


async def test_hostile_text_of_the_fleet_is_made_visible() -> None:
    fleet = FakeFleet(replace(desk(), name="a\x1b[2Jb"))
    fleet.say(Notice(level="info", text="\x1b]52;c;aGk=\x07 \u202egnp"))
    async with serving(fleet) as served:
        with attached(served.url) as remote:
            seen = Seen(remote)
            await until(lambda: any("52;c" in text for text in seen.texts()))
            assert remote.snapshot().name == "a␛[2Jb"
            assert not [text for text in seen.texts() if "\x1b" in text or "\u202e" in text]


async def test_what_was_said_comes_unchanged_and_drives_no_terminal() -> None:
    said = "می\u200cخواهم क्\u200dष soft\u00adhyphen \u200fab 葛\U000e0100 \x1b[2J"
    row = MessageRecord("1", "thread", 1, "assistant", said, "complete", run="r1")
    async with serving() as served:
        served.fleet.rows["r1"] = (row,)
        served.fleet.outcome = ToolOutcome(ok=True, content="[]", seconds=1.5, texts=(said,))
        with attached(served.url) as fleet:
            await until(lambda: fleet.can_control)
            await until(lambda: fleet._connection.client)
            (found,) = await fleet.said("r1")
            assert found.content == said.replace("\x1b", "␛")
            outcome = await fleet.call_tool("research", "docs", "search", {"q": said}, None)
            assert outcome.texts == (said.replace("\x1b", "␛"),)
            assert served.fleet.called[0][3] == {"q": said}


async def test_stopping_is_quick_also_while_a_call_is_under_way() -> None:
    async with serving() as served:

        async def never(*_: Any) -> ToolOutcome:
            await asyncio.sleep(600)
            raise AssertionError("unreachable")

        served.fleet.call_tool = never  # type: ignore[method-assign]
        with attached(served.url) as fleet:
            await until(lambda: fleet._connection.client)
            calling = asyncio.create_task(fleet.call_tool("vision", "", "x", {}))
            await until(lambda: served.api.operations.waiting == 1)
        await until(calling.done)
        calling.cancelled() or calling.exception()
        await until(lambda: served.api.operations.waiting == 0)
        assert served.fleet.stopped == 0


# --- addresses, tokens, numbers


@pytest.mark.parametrize(
    ("typed", "origin"),
    [
        ("127.0.0.1:24200", "http://127.0.0.1:24200"),
        (" http://desk.example:24200/ ", "http://desk.example:24200"),
        ("https://desk.example/.well-known/mcp/server.json", "https://desk.example"),
        ("http://[::1]:24200", "http://[::1]:24200"),
    ],
)
def test_addresses_as_people_type_them(typed: str, origin: str) -> None:
    assert control_origin(typed) == origin


@pytest.mark.parametrize(
    "typed", ["", "http://", "ftp://x:1", "http://me:secret@x:1", "http://x:1/?token=secret", "x y"]
)
def test_an_address_that_is_none_is_refused_without_secrets(typed: str) -> None:
    with pytest.raises(Fault) as refused:
        control_origin(typed)
    assert "secret" not in refused.value.message


def test_loopback_over_there_is_that_host_from_here() -> None:
    there = as_reached(desk(), "http://desk.example:24200")
    assert there.agents[0].url == "http://desk.example:24201/mcp"
    assert there.registry_url == "http://desk.example:24200"
    assert as_reached(there, "http://other.example:1") == there  # a name that was given stays
    assert as_reached(desk(), "http://127.0.0.1:24200") == desk()
    assert as_reached(desk(), "http://[2001:db8::1]:1").agents[0].url == "http://[2001:db8::1]:24201/mcp"


def test_where_tokens_come_from(tmp_path: Path) -> None:
    environ = {"PALLAS_CONTROL_TOKEN": "t-full", "PALLAS_CONTROL_READ_TOKEN": "t-read", "MINE": "t-mine"}
    assert given_token("  t-line ", "MINE", environ) == "t-line"
    assert given_token("", "MINE", environ) == "t-mine"
    assert given_token("", "", environ) == "t-full"
    assert given_token("", "", {"PALLAS_CONTROL_READ_TOKEN": "t-read"}) == "t-read"
    assert given_token("", "", {}) == ""
    with pytest.raises(Fault, match="--token-env OTHER"):
        given_token("", "OTHER", environ)
    token_file.store_token("t-file", tmp_path, 24200)
    assert TokenSource("http://127.0.0.1:24200").candidates() == ("t-file",)
    assert TokenSource("http://127.0.0.1:24200", "t-line").candidates() == ("t-line",)
    assert TokenSource("http://desk.example:24200").candidates() == ()  # never to another machine
    assert "t-line" not in repr(TokenSource("http://x:1", "t-line"))


def test_a_token_in_env_of_the_project_is_for_its_own_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "desk", {"one": None})
    port = load_project(root).registry_port
    (root / ".env").write_text("PALLAS_CONTROL_READ_TOKEN=t-of-the-file\n")
    (root / ".env").chmod(0o600)
    for name in ("PALLAS_CONTROL_TOKEN", "PALLAS_CONTROL_TEXTS_TOKEN", "PALLAS_CONTROL_READ_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for origin in (f"http://desk.example:{port}", f"http://127.0.0.1:{port - 1}"):
        read_project_env(origin, root)
        assert given_token() == ""
    read_project_env(f"http://127.0.0.1:{port}", root)
    assert given_token() == "t-of-the-file"
    monkeypatch.setenv("PALLAS_CONTROL_READ_TOKEN", "t-mine")  # the environment goes first
    read_project_env(f"http://127.0.0.1:{port}", root)
    assert given_token() == "t-mine"


def test_numbers_grow_and_gaps_are_losses() -> None:
    ring = EventRing(5)
    ring.add([notice("a"), notice("b")])
    assert [event.seq for event in ring.since(0).events] == [1, 2]
    ring.add([notice("c")], lost=3)
    batch = ring.since(2)
    assert ([event.seq for event in batch.events], batch.next, batch.dropped) == ([6], 6, 3)
    assert ring.since(6) == ring.since(6)
    assert (ring.since(6).events, ring.since(6).next, ring.since(6).dropped) == ((), 6, 0)
    ring.add([], lost=2)
    assert (ring.since(6).events, ring.since(6).next, ring.since(6).dropped) == ((), 8, 2)
    ring.add(notice(str(number)) for number in range(7))
    batch = ring.since(8, limit=2)
    assert ([event.seq for event in batch.events], batch.next, batch.dropped) == ([11, 12], 12, 2)
    assert len(ring.since(0).events) == 5


# --- the log


@asynccontextmanager
async def mirrored(served: Served, path: Path, **more: Any) -> AsyncIterator[LogMirror]:
    wire = ControlClient(served.url, READ)
    mirror = LogMirror(path, lambda: wire, **more)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_mirror, "POLL", 0.05)
        task = asyncio.create_task(mirror.run())
        try:
            yield mirror
        finally:
            task.cancel()
            await asyncio.wait({task})
            await wire.close()


def lines(start: int, stop: int) -> bytes:
    return b"".join(
        b'{"message": "line %06d", "pad": "%s"}\n' % (number, b"x" * 60) for number in range(start, stop)
    )


async def test_the_log_is_mirrored_with_all_that_was_before_and_follows_rotation(tmp_path: Path) -> None:
    there, here = tmp_path / "there.log", tmp_path / "here.log"
    (tmp_path / "there.log.1").write_bytes(lines(0, 20_000))
    there.write_bytes(lines(20_000, 40_000))
    before = tmp_path / "here.log.1"

    def whole() -> bytes:
        return (before.read_bytes() if before.exists() else b"") + here.read_bytes()

    async with serving(log=there) as served, mirrored(served, here):
        await until(lambda: here.read_bytes().endswith(lines(39_999, 40_000)))
        tail = here.stat()
        await until(lambda: whole() == lines(0, 40_000))
        # What is read there stays as it is: the older lines are a file of their own.
        assert (here.stat().st_ino, here.stat().st_size) == (tail.st_ino, tail.st_size)
        with there.open("ab") as file:
            file.write(lines(40_000, 40_010))
        await until(lambda: whole() == lines(0, 40_010))
        there.rename(tmp_path / "there.log.1")
        there.write_bytes(lines(40_010, 40_020))
        await until(lambda: whole() == lines(0, 40_020))
        there.write_bytes(lines(0, 3))  # truncated
        await until(lambda: whole() == lines(0, 40_020) + lines(0, 3))


async def test_a_mirror_whose_file_was_rotated_away_goes_on_with_what_is_left(tmp_path: Path) -> None:
    there, here = tmp_path / "there.log", tmp_path / "here.log"
    there.write_bytes(lines(0, 100))
    async with serving(log=there) as served, mirrored(served, here) as mirror:
        await until(lambda: here.exists() and here.read_bytes() == lines(0, 100))
        mirror._at = ("1-1", 0)  # a file that no longer exists
        there.unlink()
        (tmp_path / "there.log.1").write_bytes(lines(200, 210))
        there.write_bytes(lines(210, 220))
        await until(lambda: here.read_bytes() == lines(0, 100) + lines(200, 220))


def sizes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


async def test_the_mirror_keeps_to_its_limit(tmp_path: Path) -> None:
    there, here = tmp_path / "there.log", tmp_path / "here.log"
    there.write_bytes(lines(0, 20_000))
    limit = 2_000_000
    async with serving(log=there) as served, mirrored(served, here, limit=limit) as mirror:
        await until(lambda: here.exists() and not mirror._older and not mirror._fetched and mirror._at)
        assert here.read_bytes().endswith(lines(19_900, 20_000))
        assert here.read_bytes().startswith(b'{"message": "line ')
        assert here.stat().st_size <= limit // 2
        for number in range(20_000, 50_000, 5_000):
            with there.open("ab") as file:
                file.write(lines(number, number + 5_000))
            await until(lambda last=number + 4_999: here.read_bytes().endswith(lines(last, last + 1)))  # type: ignore[misc]
            assert sizes(tmp_path, "here.log*") <= limit + 1024 * 1024


# --- a fleet that really runs, in another process

SCRIPT = """\
rules:
  - when: {last: user, text: slowly}
    say: this takes its time
    delay: 60
  - when: {last: user}
    say: the scripted answer
"""


@contextmanager
def headless(root: Path, log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The fleet of the project at ``root`` in a process of its own."""
    given = {**os.environ, "PALLAS_LOG_FILE": str(log), **environment}
    process = pallas_process.start(
        "dev",
        str(root),
        "--serve",
        env=given,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def registry_of(root: Path) -> str:
    import yaml

    return f"http://127.0.0.1:{yaml.safe_load((root / 'agents.yaml').read_text())['registry_port']}"


@pytest.mark.slow
async def test_a_real_fleet_in_another_process_is_worked_on_and_left_running(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"one": None, "two": None}, SCRIPT)
    url, log, mirror = registry_of(root), tmp_path / "there.log", tmp_path / "here.log"
    with headless(root, log):
        await until(lambda: token_file.find_tokens(int(url.rpartition(":")[2])), timeout=60)
        with attached(url, "", log_mirror=mirror) as fleet:
            seen = Seen(fleet)
            await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
            assert fleet.can_control
            for era in ("auto", "legacy"):
                agent = ChatClient(fleet.snapshot().agents[0].url, f"c-{era}", era=era)  # type: ignore[arg-type]
                reply = await agent.send("hello")
                assert reply.text == "the scripted answer"
                await agent.close()
            await until(lambda: sum(isinstance(event, RunFinished) for event in seen.read()) == 2)
            slow = ChatClient(fleet.snapshot().agents[1].url, "c-slow")
            asking = asyncio.create_task(slow.send("slowly"))
            await until(lambda: fleet.snapshot().agents[1].runs_active == 1)
            run = [event for event in seen.read() if isinstance(event, RunStarted)][-1]
            fleet.cancel(run.run_id)
            await until(lambda: any(
                isinstance(event, RunFinished) and event.outcome == "cancelled" for event in seen.read()
            ))  # fmt: skip
            await asking
            await slow.close()
            await until(lambda: mirror.exists() and b"cancel run" in mirror.read_bytes())
            said = [json.loads(line) for line in mirror.read_text("utf-8").splitlines()]
            assert {each.get("project") for each in said} == {fleet.snapshot().project} == {str(root)}
            fleet.control("two", "restart")
            await until(lambda: fleet.snapshot().agents[1].restarts == 1, timeout=60)
        with attached(url, "") as again:  # leaving left it running
            await until(lambda: again.snapshot().state is FleetState.RUNNING)
    assert token_file.find_tokens(int(url.rpartition(":")[2])) == ()


@pytest.mark.slow
async def test_a_real_fleet_that_is_stopped_and_started_anew(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": agent_module("one")})
    url, log = registry_of(root), tmp_path / "there.log"
    timer = Timer()
    with headless(root, log) as process:
        remote = RemoteFleet(url, TokenSource(url), timer=timer)
        await until(lambda: token_file.find_tokens(int(url.rpartition(":")[2])), timeout=60)
        remote.start()
        await until(lambda: remote.snapshot().state is FleetState.RUNNING, timeout=60)
        seen = Seen(remote)
        assert remote.attachment is not None
        assert remote.attachment.place == f"this machine (pid {process.pid})"
        process.send_signal(signal.SIGSTOP)
        await until(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())

        def a_minute_later() -> int:
            timer.now += 60
            return late(remote)

        try:
            # What was on its way before it stopped is an answer too.
            await until(lambda: a_minute_later() >= 60)
            remote.control("one", "restart")  # answered as soon as it goes on, before the next comment
        finally:
            process.send_signal(signal.SIGCONT)
        await until(lambda: late(remote) == 0)
    try:
        await until(lambda: "the fleet was stopped" in remote.snapshot().stale)
        assert is_free(int(url.rpartition(":")[2]))
        with headless(root, log):  # with another token in its file
            await until(lambda: "connected again: the fleet was started again" in seen.texts(), timeout=60)
            await until(lambda: remote.snapshot().state is FleetState.RUNNING, timeout=60)
            assert not remote.snapshot().stale
    finally:
        remote.stop(10)


async def test_the_fleet_of_a_workbench_can_be_attached_to_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.chdir(tmp_path)
    root = write_project(tmp_path / "p", {"one": agent_module("one")})
    url = registry_of(root)
    there = ThreadedFleet(root)
    there.start()
    try:
        await until(lambda: there.snapshot().state is FleetState.RUNNING, timeout=60)
        with attached(url, "") as fleet:
            await until(lambda: fleet.snapshot() == there.snapshot())
            assert fleet.can_control
            detail = await fleet.describe("one")
            assert detail == await there.describe("one")
            assert any(tool.name == "send_message" for server in detail.servers for tool in server.tools)
            outcome = await fleet.call_tool("one", "", "get_health", {})
            assert outcome.ok
    finally:
        there.stop(10)
    assert token_file.find_tokens(int(url.rpartition(":")[2])) == ()


@pytest.mark.slow
async def test_a_real_fleet_takes_the_tokens_of_its_environment_and_hides_them(tmp_path: Path) -> None:
    spy = "import os\nopen('seen.txt', 'w').write(repr(sorted(os.environ.items())))\n"
    root = write_project(tmp_path / "p", {"one": spy + agent_module("one")})
    url, log = registry_of(root), tmp_path / "there.log"
    with headless(root, log, PALLAS_CONTROL_TOKEN=FULL, PALLAS_CONTROL_READ_TOKEN=READ):
        for token, may in ((READ, False), (FULL, True)):
            with attached(url, token) as fleet:
                await until(lambda: fleet.snapshot().state is FleetState.RUNNING, timeout=60)
                assert fleet.can_control is may
    assert not list((tmp_path / "state").rglob("*.json"))
    assert FULL not in (root / "seen.txt").read_text()
    assert FULL not in log.read_text()
    assert READ not in log.read_text()
