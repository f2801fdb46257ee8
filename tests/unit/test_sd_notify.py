"""What systemd is told, on real datagram sockets, read as systemd reads it."""

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from time import CLOCK_MONOTONIC, clock_gettime_ns

import pytest
from support.fake_fleet import agent, desk
from support.waiting import until

from pallas.cli.systemd_notify import Notifier, ServiceReport, status_of
from pallas.model import AgentChanged, AgentState, FleetChanged, FleetSnapshot, FleetState


class Systemd:
    """The other end: every datagram as its assignments, in order."""

    def __init__(self, address: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(address)
        self.sock.setblocking(False)

    def heard(self) -> list[dict[str, str]]:
        """What came since the last time. A line that is no assignment fails the test."""
        news = []
        while True:
            try:
                raw = self.sock.recv(65_536)
            except BlockingIOError:
                return news
            pairs = [line.partition("=") for line in raw.decode("utf-8").split("\n")]
            assert all(equals and name.isupper() for name, equals, _ in pairs), raw
            news.append({name: value for name, _, value in pairs})


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Systemd, dict[str, str]]]:
    if request.param == "path":
        name = shown = str(tmp_path / "notify")
    else:
        shown = f"@pallas-test-{os.getpid()}-{tmp_path.name}"
        name = "\0" + shown[1:]
    there = Systemd(name)
    yield there, {"NOTIFY_SOCKET": shown, "WATCHDOG_USEC": "200000", "HOME": "/"}
    there.sock.close()


def report(notifier: Notifier, fleet: FleetSnapshot) -> ServiceReport:
    return ServiceReport(notifier, lambda: fleet, lambda: 30.0)


def test_the_variables_are_taken_out_of_the_environment(systemd: tuple[Systemd, dict[str, str]]) -> None:
    _, environ = systemd
    notifier = Notifier(environ)
    assert environ == {"HOME": "/"}
    assert notifier.is_enabled
    assert notifier.watchdog == 0.2


def test_what_is_said_arrives_a_line_each(systemd: tuple[Systemd, dict[str, str]]) -> None:
    there, environ = systemd
    Notifier(environ).send(READY=1, STATUS="3 ready")
    assert there.heard() == [{"READY": "1", "STATUS": "3 ready"}]


def test_a_fleet_is_ready_when_it_runs_and_its_status_follows(
    systemd: tuple[Systemd, dict[str, str]],
) -> None:
    there, environ = systemd
    fleet = FleetSnapshot(
        "p",
        FleetState.RUNNING,
        0,
        "",
        (agent("a", 1), agent("b", 2), agent("c", 3, state=AgentState.CRASH_LOOP)),
    )
    told = report(Notifier(environ), fleet)
    told.hear(AgentChanged(agent="a", state=AgentState.READY))
    told.hear(AgentChanged(agent="b", state=AgentState.READY))
    told.hear(FleetChanged(state=FleetState.RUNNING))
    status = "2 ready, 1 crash-loop"
    assert there.heard() == [{"STATUS": status}, {"READY": "1", "STATUS": status}]


def test_the_end_asks_for_time_while_it_drains(systemd: tuple[Systemd, dict[str, str]]) -> None:
    there, environ = systemd
    told = report(Notifier(environ), desk())
    told.hear(FleetChanged(state=FleetState.DRAINING, detail="2 runs in flight: a b (1 s)\nx=1"))
    told.hear(FleetChanged(state=FleetState.STOPPING))
    draining, stopping = there.heard()
    assert draining["STOPPING"] == "1"
    assert int(draining["EXTEND_TIMEOUT_USEC"]) >= 35_000_000
    assert draining["STATUS"].startswith("draining: 2 runs in flight")
    assert set(draining) == {"STOPPING", "EXTEND_TIMEOUT_USEC", "STATUS"}  # a line break adds no assignment
    assert stopping["STOPPING"] == "1"


def test_a_reload_is_told_with_the_time_it_began_and_its_end(
    systemd: tuple[Systemd, dict[str, str]],
) -> None:
    there, environ = systemd
    told = report(Notifier(environ), desk())
    before = clock_gettime_ns(CLOCK_MONOTONIC) // 1_000
    told.reloading()
    told.reloaded()
    began, over = there.heard()
    assert began["RELOADING"] == "1"
    assert before <= int(began["MONOTONIC_USEC"]) <= clock_gettime_ns(CLOCK_MONOTONIC) // 1_000
    assert over == {"READY": "1", "STATUS": "4 ready"}


async def test_signs_of_life_end_while_the_loop_is_blocked(systemd: tuple[Systemd, dict[str, str]]) -> None:
    there, environ = systemd
    life = asyncio.create_task(report(Notifier(environ), desk()).signs_of_life())
    try:
        heard: list[dict[str, str]] = []
        await until(lambda: heard.extend(there.heard()) or len(heard) >= 3)
        assert heard == [{"WATCHDOG": "1"}] * len(heard)
        there.heard()
        # Twice the interval, and only this line has the loop.
        there.sock.settimeout(0.4)  # subject: nothing comes
        with pytest.raises(TimeoutError):
            there.sock.recv(100)
        there.sock.setblocking(False)
        await until(there.heard)
    finally:
        life.cancel()


def test_the_watchdog_of_another_process_is_not_ours(systemd: tuple[Systemd, dict[str, str]]) -> None:
    _, environ = systemd
    assert Notifier({**environ, "WATCHDOG_PID": "1"}).watchdog == 0
    assert Notifier({**environ, "WATCHDOG_PID": str(os.getpid())}).watchdog == 0.2
    assert Notifier({**environ, "WATCHDOG_USEC": "soon"}).watchdog == 0


@pytest.mark.parametrize("address", ["", "vsock:2:1234", "relative/path"])
async def test_without_a_socket_of_that_kind_nothing_happens(address: str) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000"})
    assert not notifier.is_enabled
    notifier.send(READY=1)
    await report(notifier, desk()).signs_of_life()


def test_a_socket_that_is_gone_or_full_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    gone.send(READY=1)
    gone.send(READY=1)
    assert len(caplog.records) == 1
    there = Systemd(str(tmp_path / "full"))
    full = Notifier({"NOTIFY_SOCKET": str(tmp_path / "full")})
    for _ in range(5_000):  # nobody reads
        full.send(STATUS="x" * 1_000)
    assert len(caplog.records) == 2
    there.sock.close()


def test_the_status_counts_the_agents_of_each_state() -> None:
    starting = FleetSnapshot("p", FleetState.STARTING, 0, "", (agent("a", 1, state=AgentState.IMPORTING),))
    assert status_of(starting) == "starting: 1 importing"
    assert status_of(FleetSnapshot("p", FleetState.RUNNING, 0, "")) == "no agents"
