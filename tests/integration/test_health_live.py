"""The health of a real fleet whose downstreams are slow, deaf, refusing, gone and back again."""

import asyncio
import json
import sys
import types
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.dials import Dials, dials
from support.fake_downstreams import FakeDownstream, serving, status
from support.live import ERAS, MODERN_FIRST, agent_module, ask, client, running, tool_call, write_project
from support.offline import offline_model
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.health.probe import prober, server_probe
from pallas.model import AgentState, CallOutcome, Event, HealthChanged, HealthStatus, ProbeResult
from pallas.scripted.scripted_server import record_of

QUICK = CheckIntervals(health=0.05, confirm=0.02, providers=0.05, retry=0.05)
NEVER = CheckIntervals(health=3600, confirm=3600, providers=3600, retry=3600)
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


def project(root: Path, servers: Mapping[str, Dials | str], **more: Any) -> Path:
    """One agent named ``one`` with these downstreams."""
    urls = {name: server if isinstance(server, str) else server.url for name, server in servers.items()}
    config = {
        "mcp": {"servers": {name: {"url": url} for name, url in urls.items()}},
        **more.pop("config", {}),
    }
    return write_project(root, {"one": agent_module("one", tuple(servers))}, config=config, **more)


def look_again(fleet: Fleet) -> None:
    """Let the next question find what it finds, as if the last one were long ago."""
    for agent in fleet.agents:
        agent.watched._prober._at = None


@contextmanager
def time_to_answer(fleet: Fleet) -> Iterator[float]:
    """In the block the probes of its agent have that many seconds, in place of three."""
    (agent,) = fleet.agents
    assert agent.watched._prober._timeout_s == server_probe.TIMEOUT
    agent.watched._prober._timeout_s = 60.0
    try:
        yield 60.0
    finally:
        agent.watched._prober._timeout_s = server_probe.TIMEOUT


async def health(fleet: Fleet, era: str) -> dict[str, str]:
    """What ``get_health`` of the agent answers."""
    async with client(fleet, "one", era=era) as one:
        result = await one.call_tool("get_health", {})
        (block,) = result.content
        answer: dict[str, str] = json.loads(block.text)  # type: ignore[union-attr]
        return answer


def changes(fleet: Fleet) -> list[tuple[str, str]]:
    """The changes of health that were told once the agent was ready, the first of them left out."""
    events = [event for event in fleet.hub.since(0).events if isinstance(event, HealthChanged)]
    return [(event.health.status.value, event.health.message) for event in events][1:]


class TestTenDownstreams:
    """Ten real servers, of both eras and of one each, behind an agent with the offline model."""

    pytestmark = pytest.mark.asyncio(loop_scope="class")

    @pytest_asyncio.fixture(scope="class", loop_scope="class")
    async def fleet(
        self, tmp_path_factory: pytest.TempPathFactory
    ) -> AsyncIterator[tuple[Fleet, list[Dials]]]:
        async with dials(10) as servers:
            root = project(
                tmp_path_factory.mktemp("ten"),
                {f"d{number}": server for number, server in enumerate(servers)},
                **offline_model("rules:\n  - when: {last: user}\n    say: hello\n"),
            )
            async with running(root, pace=NEVER) as fleet:
                yield fleet, servers

    @both_eras
    async def test_all_ten_are_asked_before_any_of_them_answers(
        self, fleet: tuple[Fleet, list[Dials]], era: str
    ) -> None:
        # PI-9, PI-10, PI-13
        running_fleet, servers = fleet
        assert running_fleet.surfaces.offline_model.server is not None
        asked = record_of(running_fleet.surfaces.offline_model.server).calls
        before, gate = [server.requests for server in servers], asyncio.Event()
        for server in servers:
            server.gate = gate
        with time_to_answer(running_fleet):
            look_again(running_fleet)
            asking = asyncio.create_task(health(running_fleet, era))
            await until(
                lambda: all(server.requests > count for server, count in zip(servers, before, strict=True))
            )
            gate.set()
            answer = await asking
        assert answer["status"] == "ok", answer
        assert record_of(running_fleet.surfaces.offline_model.server).calls == asked
        async with client(running_fleet, "one", era=era) as one:
            assert await ask(one, "x") == "hello"  # the counter counts
        assert record_of(running_fleet.surfaces.offline_model.server).calls == asked + 1

    async def test_one_that_never_answers_costs_three_and_a_half_seconds_at_most(
        self, fleet: tuple[Fleet, list[Dials]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # PI-10: of either era, both ask at once
        running_fleet, servers = fleet
        waits: list[tuple[int, float]] = []

        async def wait(tasks: Collection[asyncio.Task[Any]], *, timeout: float) -> Any:
            waits.append((len(tasks), timeout))
            if len(tasks) == 1:  # a caller waits for the round
                return await asyncio.wait(tasks)
            # The round's time is over as soon as the nine have answered.
            await until(lambda: sum(task.done() for task in tasks) == 9)
            return await asyncio.wait(tasks, timeout=0)

        waiting = types.ModuleType("asyncio")
        waiting.__dict__.update(asyncio.__dict__, wait=wait)
        monkeypatch.setattr(prober, "asyncio", waiting)
        servers[4].deaf = True
        try:
            with time_to_answer(running_fleet) as limit:
                look_again(running_fleet)
                answers = await asyncio.gather(*(health(running_fleet, era) for era in ERAS))
        finally:
            servers[4].deaf = False
        for answer in answers:
            assert (answer["status"], answer["message"]) == ("degraded", "Unreachable: d4")
        # A caller waits for one round, which has one time limit for all: 3 s unless a test sets another.
        assert sorted({*waits}) == [(1, limit + 0.25), (10, limit)]
        assert [tasks for tasks, _ in waits].count(1) <= len(ERAS)
        assert server_probe.TIMEOUT + 0.25 <= 3.5


@pytest.mark.slow
async def test_refused_broken_and_asking_for_credentials_are_told_apart(tmp_path: Path) -> None:
    # PI-8, PI-12
    async with dials(5, era="both") as (fine, vault, gate, broken, closed):
        vault.status, gate.status, broken.status = 401, 403, 500
        await closed.go()
        servers = {"fine": fine, "vault": vault, "gate": gate, "broken": broken, "closed": closed}
        async with running(project(tmp_path, servers), pace=NEVER) as fleet:
            said = "Unreachable: broken, closed; Auth required: vault, gate"
            for era in ERAS:
                look_again(fleet)
                answer = await health(fleet, era)
                assert (answer["status"], answer["message"]) == ("degraded", said)
            (one,) = fleet.snapshot().agents
            assert (one.state, one.health.message) == (AgentState.READY, said)
            found = {each.name: (each.reach, each.detail) for each in one.downstreams}
            assert found["vault"] == (ProbeResult.AUTH_REQUIRED, "HTTP 401")
            assert found["gate"] == (ProbeResult.AUTH_REQUIRED, "HTTP 403")
            assert found["broken"] == (ProbeResult.UNREACHABLE, "HTTP 500")
            assert found["fine"][0] is ProbeResult.OK


async def test_an_agent_that_still_starts_says_so_at_once_and_looks_at_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-8, PI-12
    monkeypatch.setattr(sys, "argv", ["pallas"])
    monkeypatch.chdir(tmp_path)
    async with dials(era="both") as (shop,):
        shop.deaf = True
        fleet = Fleet(load_project(project(tmp_path, {"shop": shop})), dev=True, pace=NEVER)
        starting = asyncio.create_task(fleet.start())
        try:
            await until(lambda: fleet.agents[0].state is AgentState.CONNECTING and shop.requests)
            for era in ERAS:
                answer = await health(fleet, era)
                assert (answer["status"], answer["message"]) == ("error", "Starting: connecting its servers")
            assert fleet.agents[0].snapshot().downstreams[0].reach is ProbeResult.UNKNOWN
            assert not starting.done()
        finally:
            await shop.go()
            await asyncio.wait({starting}, timeout=30)
            await fleet.stop()


async def test_health_follows_while_nobody_asks(tmp_path: Path) -> None:
    # PI-12
    async with (
        dials(era="handshake") as (shop,),
        running(project(tmp_path, {"shop": shop}), pace=QUICK) as fleet,
    ):
        (agent,) = fleet.agents
        assert changes(fleet) == []
        for _ in range(2):
            await shop.go()
            await until(lambda: agent.snapshot().health.message == "Unreachable: shop")
            await shop.come()
            await until(lambda: agent.snapshot().health.status.value == "ok")
        assert changes(fleet) == [("degraded", "Unreachable: shop"), ("ok", "")] * 2
        shop.status = 401
        await until(lambda: agent.snapshot().health.message == "Auth required: shop")
        assert changes(fleet)[4:] == [("degraded", "Auth required: shop")]


@pytest.mark.slow
async def test_a_missed_probe_is_told_to_who_asks_and_changes_nothing_until_it_is_confirmed(
    tmp_path: Path,
) -> None:
    # PI-10, PI-12
    async with dials(era="both") as (shop,), running(project(tmp_path, {"shop": shop}), pace=NEVER) as fleet:
        (agent,) = fleet.agents

        def deaf(whether: bool) -> None:
            shop.deaf = whether
            agent.watched._prober._timeout_s = 0.5 if whether else 30  # an answer has the time for it

        deaf(True)
        look_again(fleet)
        answer = await health(fleet, ERAS[0])
        assert (answer["status"], answer["message"]) == ("degraded", "Unreachable: shop")
        assert agent.snapshot().health.status.value == "ok"
        assert agent.snapshot().downstreams[0].reach is ProbeResult.OK
        assert agent.watched.unconfirmed
        assert changes(fleet) == []
        deaf(False)
        await agent.check_health()
        assert (changes(fleet), agent.watched.unconfirmed) == ([], False)
        deaf(True)
        await agent.check_health()
        await agent.check_health()
        assert changes(fleet) == [("degraded", "Unreachable: shop")]
        deaf(False)
        await agent.check_health()
        assert len(changes(fleet)) == 1  # once is not yet well
        assert (await health(fleet, ERAS[1]))["status"] == "ok"
        await agent.check_health()
        assert changes(fleet)[1:] == [("ok", "")]


def call(tool: str) -> str:
    """What makes the passthrough model call a tool of the shop."""
    return tool_call(f"shop__{tool}", text="x")


@pytest.mark.slow
@pytest.mark.parametrize("down", ["modern", "handshake"])
@pytest.mark.parametrize(
    ("code", "reach", "message"),
    [
        (503, ProbeResult.UNREACHABLE, "Failing: shop (last call: HTTP 503)"),
        (401, ProbeResult.AUTH_REQUIRED, "Auth required: shop (last call: HTTP 401)"),
    ],
)
async def test_real_calls_that_fail_show_though_the_probe_is_answered(
    tmp_path: Path, down: Any, code: int, reach: ProbeResult, message: str
) -> None:
    # PI-12
    async with dials(era=down) as (shop,), running(project(tmp_path, {"shop": shop}), pace=NEVER) as fleet:
        (agent,) = fleet.agents

        def last() -> CallOutcome:
            found = agent.snapshot().downstreams[0].last_call
            assert found is not None
            return found

        assert agent.snapshot().downstreams[0].last_call is None
        async with client(fleet, "one") as one:
            await ask(one, call("note"))
            assert (last().ok, last().detail) == (True, "")
            await one.call_tool("send_message", {"message": call("fail")})
            assert (last().ok, last().reach, last().detail) == (False, ProbeResult.OK, "fail failed")
            assert (changes(fleet), (await health(fleet, ERAS[0]))["status"]) == ([], "ok")
            shop.call_status = code
            await one.call_tool("send_message", {"message": call("note")})
            assert (last().ok, last().reach, last().detail) == (False, reach, f"HTTP {code}")
            await until(lambda: changes(fleet) == [("degraded", message)])
            for era in ERAS:
                look_again(fleet)
                answer = await health(fleet, era)
                assert (answer["status"], answer["message"]) == ("degraded", message)
            assert agent.snapshot().downstreams[0].reach is ProbeResult.OK  # as the probe found it
            shop.call_status = 0
            await ask(one, call("note"))
            await until(lambda: changes(fleet)[1:] == [("ok", "")])
            assert last().ok


@pytest.mark.slow
@pytest.mark.parametrize("down", ["modern", "handshake"])
@pytest.mark.parametrize("outage", ["gone", "refusing"])
async def test_a_server_that_failed_a_call_is_well_again_when_it_answers_the_probes(
    tmp_path: Path, down: Any, outage: str
) -> None:
    # PI-12: a failed call has it probed at once, and a server that is out of reach is asked more often
    pace = CheckIntervals(health=3600, confirm=0.05, providers=3600, retry=3600)
    async with dials(era=down) as (shop,), running(project(tmp_path, {"shop": shop}), pace=pace) as fleet:
        (agent,) = fleet.agents
        async with client(fleet, "one") as one:
            await ask(one, call("note"))
            if outage == "gone":
                await shop.go()
            shop.status = 503
            await one.call_tool("send_message", {"message": call("note")})
            await until(lambda: agent.snapshot().health.message == "Unreachable: shop")
            shop.status = 0
            if outage == "gone":
                await shop.come()
            await until(lambda: agent.snapshot().health.status.value == "ok")
            assert not agent.watched.uneasy


async def _models(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    return JSONResponse({"data": [{"id": "good"}]})


async def test_a_key_that_is_revoked_while_the_fleet_runs_degrades_its_agents_until_it_is_mended(
    tmp_path: Path,
) -> None:
    # PR-20, PR-21, PR-22, PR-23
    provider = FakeDownstream(_models)
    async with serving(provider) as origin, dials(era="both") as (shop,):
        config = {"default_model": "openai.good", "openai": {"base_url": f"{origin}/v1", "api_key": "sk-77"}}
        async with running(project(tmp_path, {"shop": shop}, config=config), pace=QUICK) as fleet:
            (agent,) = fleet.agents
            assert agent.snapshot().health.status.value == "ok"
            provider.answer = status(401)
            refused = (
                "LLM: openai: the API key was refused (HTTP 401); correct openai.api_key in "
                "fastagent.config.yaml:11"
            )
            await until(lambda: changes(fleet) == [("degraded", refused)])
            for era in ERAS:
                assert (await health(fleet, era))["message"] == refused
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                url = fleet.registry_url.partition("/.well-known")[0]
                (report,) = (await http.get(f"{url}/healthz")).json()["providers"]
                assert report == {
                    "provider": "openai",
                    "active": True,
                    "ok": False,
                    "message": refused.removeprefix("LLM: "),
                }
            await shop.go()
            await until(lambda: changes(fleet)[1:] == [("degraded", f"Unreachable: shop; {refused}")])
            assert "sk-77" not in repr(fleet.hub.since(0).events)
            provider.answer = _models
            await shop.come()
            await until(lambda: changes(fleet)[-1] == ("ok", ""))


async def test_a_model_that_the_provider_lacks_is_named_from_the_start(tmp_path: Path) -> None:
    # PR-21
    async with serving(FakeDownstream(_models)) as origin:
        config = {"default_model": "openai.bad-model", "openai": {"base_url": f"{origin}/v1", "api_key": "k"}}
        async with running(project(tmp_path, {}, config=config), pace=NEVER) as fleet:
            for era in ERAS:
                answer = await health(fleet, era)
                assert answer["status"] == "degraded"
                assert answer["message"] == "LLM: openai: model 'bad-model' not found"


async def test_an_inactive_providers_refusal_leaves_the_agents_ok(tmp_path: Path) -> None:
    # PR-21
    provider = FakeDownstream(status(401))
    async with serving(provider) as origin:
        config = {"anthropic": {"base_url": origin, "api_key": "k"}}
        async with running(project(tmp_path, {}, config=config), pace=NEVER) as fleet:
            assert (await health(fleet, ERAS[0]))["status"] == "ok"
            assert [seen.path for seen in provider.seen] == ["/v1/models/claude-sonnet-4-5"]


async def test_an_agent_that_becomes_ready_is_at_no_moment_shown_as_in_error(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": None})
    fleet = Fleet(load_project(tmp_path), dev=True)
    shown: list[tuple[AgentState, HealthStatus]] = []

    def look(_: Event) -> None:
        shown.extend((agent.state, agent.health.status) for agent in fleet.snapshot().agents)

    fleet.hub.listen(look)
    try:
        await fleet.start()
    finally:
        await fleet.stop()
    assert (AgentState.READY, HealthStatus.OK) in shown
    assert (AgentState.READY, HealthStatus.ERROR) not in shown
