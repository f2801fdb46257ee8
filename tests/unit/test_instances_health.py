"""When agents are polled, and what comes of it: with a clock that the test turns."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_fleet import NOON
from support.registries import HandClock
from support.waiting import until

from pallas.model import Fault, FaultType, HealthStatus
from pallas_tui.instances.agent_poller import AgentPoller, PollPace
from pallas_tui.instances.health_polls import MESSAGE_LIMIT, health_in, poll_interval
from pallas_tui.instances.instance_model import RegistryAgent
from pallas_tui.launch import wishes
from pallas_tui.settings import state_path


def result(text: str, *, error: bool = False) -> Any:
    return SimpleNamespace(content=[SimpleNamespace(type="text", text=text)], is_error=error)


class Wire:
    """Answers with ``health``: a status, a Fault, or nothing for ever."""

    def __init__(self) -> None:
        self.health: str | Fault | None = "ok"
        self.calls: list[tuple[str, Any]] = []
        self.closed = 0

    async def call(self, tool: str, arguments: Any) -> Any:
        self.calls.append((tool, arguments))
        if isinstance(self.health, Fault):
            raise self.health
        if self.health is None:
            await asyncio.Event().wait()
        return result(json.dumps({"status": self.health, "message": f"it is {self.health}"}))

    async def close(self) -> None:
        self.closed += 1


AGENT = RegistryAgent("research", "ns/research", "Research", "http://there:1/mcp")


@pytest.mark.parametrize(
    ("wish", "seconds", "wrong"),
    [
        (None, 60, False),
        ("", 60, False),
        ("5", 5, False),
        (" 2.5 ", 2.5, False),
        ("0", 60, True),
        ("-3", 60, True),
        ("soon\x1b[2J", 60, True),
        ("nan", 60, True),
        ("inf", 60, True),
        ("1e9", 60, True),
    ],
)
def test_the_interval_is_a_minute_unless_the_variable_says_otherwise(
    wish: str | None, seconds: float, wrong: bool
) -> None:
    # PI-15
    environment = {} if wish is None else {"DAEDALUS_MCP_HEALTH_INTERVAL": wish}
    interval, mistake = poll_interval(environment)
    assert interval == seconds
    assert bool(mistake) is wrong
    if wrong:
        assert "DAEDALUS_MCP_HEALTH_INTERVAL" in mistake
        assert "60 is used" in mistake
        assert "\x1b" not in mistake


def test_an_agent_is_polled_once_an_interval_when_nothing_else_is_said() -> None:
    # PI-15
    assert PollPace().interval == 60


def test_the_workbench_takes_the_interval_and_tells_a_bad_one_at_its_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # PI-15
    monkeypatch.setenv("PALLAS_WORKBENCH_CONFIG", str(tmp_path / "mine.yaml"))
    (tmp_path / "mine.yaml").write_text("theme: nord\nwrong: 1\n")
    monkeypatch.setenv("DAEDALUS_MCP_HEALTH_INTERVAL", "7")
    settings, instances = wishes()
    assert instances.pace.interval == 7
    assert len(settings.mistakes) == 1
    monkeypatch.setenv("DAEDALUS_MCP_HEALTH_INTERVAL", "seven")
    settings, instances = wishes()
    assert instances.pace.interval == 60
    assert "DAEDALUS_MCP_HEALTH_INTERVAL" in settings.mistakes[1]
    assert settings.theme == "nord"
    # What is registered lies beside the settings.
    assert state_path("instances") == tmp_path / "mine.instances.json"


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        ('{"status": "ok", "timestamp": "2026-03-12T15:42:00Z"}', "ok", ""),
        ('{"status": "degraded", "message": "Neo4j slow"}', "degraded", "Neo4j slow"),
        ('{"status": "error"}', "error", "The agent reports error without a reason"),
        ('{"status": "degraded", "message": ["x"]}', "degraded", "without a reason"),
        ('{"status": "fine"}', "error", "did not answer with a health record"),
        ('{"status": ["ok"]}', "error", "did not answer with a health record"),
        ("[]", "error", "did not answer with a health record"),
        ("", "error", "did not answer with a health record"),
        ("[" * 100_000, "error", "did not answer with a health record"),
    ],
)
def test_what_an_answer_of_get_health_means(text: str, status: str, message: str) -> None:
    found, said = health_in(result(text))
    assert found is HealthStatus(status)
    assert message in said
    assert bool(said) is (status != "ok")


def test_an_error_result_and_an_empty_one_are_errors() -> None:
    assert health_in(result("boom", error=True)) == (HealthStatus.ERROR, "get_health failed: boom")
    assert health_in(SimpleNamespace(content=[], is_error=False))[0] is HealthStatus.ERROR


def test_a_health_message_cannot_drive_a_terminal_and_has_an_end() -> None:
    body = {"status": "degraded", "message": "\x1b]52;c;cm0=\x07[bold]x[/] \u202egnp.exe" + "x" * 10_000}
    _, message = health_in(result(json.dumps(body)))
    assert not {"\x1b", "\x07", "\u202e"} & set(message)
    assert "[bold]x[/]" in message
    assert len(message) <= MESSAGE_LIMIT
    _, failed = health_in(result("\x1b[2J", error=True))
    assert "\x1b" not in failed


async def test_health_is_cached_between_polls_and_a_failed_poll_is_an_error() -> None:
    # PI-15
    wire, clock, told = Wire(), HandClock(), []
    watch = AgentPoller(AGENT, wire, PollPace(clock=clock, wait=clock.wait), told.append)
    watch.start()
    try:
        await until(lambda: clock.waiting == 1)
        assert wire.calls == [("get_health", {})]
        first = watch.health
        assert first is not None
        assert (first.status, first.since, first.checked_at) == (HealthStatus.OK, NOON, NOON)

        wire.health = Fault(FaultType.TRANSPORT, "gone")
        clock.turn(59.9)
        for _ in range(10):
            await asyncio.sleep(0)
        assert watch.health is first
        assert len(wire.calls) == 1

        clock.turn(0.1)
        await until(lambda: len(told) == 2 and clock.waiting == 1)
        second = watch.health
        assert second is not None
        assert second.status is HealthStatus.ERROR
        assert second.message == (
            "get_health failed: nothing answers at http://there:1/mcp, or the connection broke off"
        )
        assert wire.closed == 1  # the next poll shall connect anew

        clock.turn(60)
        await until(lambda: len(told) == 3 and clock.waiting == 1)
        third = watch.health
        assert third is not None
        assert (third.since, third.checked_at) == (NOON + 60, NOON + 120)

        wire.health = "degraded"
        clock.turn(60)
        await until(lambda: len(told) == 4)
        assert watch.health is not None
        assert (watch.health.status, watch.health.message) == (HealthStatus.DEGRADED, "it is degraded")
        assert watch.health.since == NOON + 180
    finally:
        await watch.stop()


async def test_the_interval_of_the_user_is_kept_and_a_poke_does_not_wait_for_it() -> None:
    # PI-15
    wire, clock, told = Wire(), HandClock(), []
    watch = AgentPoller(AGENT, wire, PollPace(interval=5, clock=clock, wait=clock.wait), told.append)
    watch.start()
    try:
        for polls in (1, 2, 3):
            await until(lambda polls=polls: len(told) == polls and clock.waiting == 1)
            clock.turn(5)
        await until(lambda: len(told) == 4 and clock.waiting == 1)
        watch.poke()
        await until(lambda: len(told) == 5)
        assert clock.now == NOON + 15
    finally:
        await watch.stop()


async def test_a_poll_that_is_never_answered_ends_and_the_poll_of_another_does_not_wait_for_it() -> None:
    # PI-15
    slow, quick, clock, told = Wire(), Wire(), HandClock(), []
    slow.health = None
    pace = PollPace(timeout=0.3, clock=clock, wait=clock.wait)
    watches = [AgentPoller(AGENT, wire, pace, told.append) for wire in (slow, quick)]
    for watch in watches:
        watch.start()
    try:
        await until(lambda: watches[1].health)
        assert watches[0].health is None
        health = await until(lambda: watches[0].health)
        assert health.status is HealthStatus.ERROR
        assert "not answered within 0.3 s" in health.message
    finally:
        for watch in watches:
            await watch.stop()


async def test_stopping_ends_a_poll_in_flight_and_the_connection() -> None:
    wire, clock, told = Wire(), HandClock(), []
    wire.health = None
    watch = AgentPoller(AGENT, wire, PollPace(clock=clock, wait=clock.wait), told.append)
    watch.start()
    await until(lambda: wire.calls)
    await asyncio.wait_for(watch.stop(), 60)
    assert wire.closed == 1
    assert not told


async def test_a_defect_of_the_connection_is_an_error_and_the_polls_go_on() -> None:
    wire, clock, told = Wire(), HandClock(), []
    wire.health = ""  # makes the status unknown
    watch = AgentPoller(AGENT, wire, PollPace(clock=clock, wait=clock.wait), told.append)
    wire.call = None  # type: ignore[assignment, method-assign]  # calling it raises TypeError
    watch.start()
    try:
        await until(lambda: clock.waiting == 1)
        assert watch.health is not None
        assert watch.health.status is HealthStatus.ERROR
        assert "TypeError" in watch.health.message
        clock.turn(60)
        await until(lambda: len(told) == 2)
    finally:
        await watch.stop()
