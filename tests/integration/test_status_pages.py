"""Liveness, readiness and metrics over HTTP: of a whole fleet, and of one agent served alone."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.dials import dials
from support.live import ECHO, MODERN_FIRST, agent_module, ask, client, running, write_project
from support.offline import offline_model
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.agent_factory import make_executor
from pallas.fleet.fleet import Fleet

CALL = '***CALL_TOOL echo__{} {{"text": "hi"}}'
modes = pytest.mark.parametrize("only", [None, "one"], ids=["fleet", "alone"])


def _origin(fleet: Fleet) -> str:
    """Where the pages are: the registry's port, or the agent's own when it is alone."""
    return (fleet.registry_url or fleet.agents[0].url).partition("/.well-known")[0].removesuffix("/mcp")


@asynccontextmanager
async def _http(fleet: Fleet) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=_origin(fleet), trust_env=False, timeout=60) as http:
        yield http


async def _samples(fleet: Fleet) -> dict[tuple[str, ...], float]:
    """Every sample of the exposition by its name and the values of its labels."""
    async with _http(fleet) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@modes
async def test_readyz_is_503_while_the_fleet_starts_and_while_it_drains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: str | None
) -> None:
    # PR-23
    may_start, may_end = asyncio.Event(), asyncio.Event()

    async def held_back(*arguments: Any) -> Any:
        await may_start.wait()
        return await make_executor(*arguments)

    monkeypatch.setattr(sys, "argv", ["pallas"])
    monkeypatch.chdir(tmp_path)
    root = write_project(tmp_path, {"one": None, "two": None})
    fleet = Fleet(load_project(root, {**os.environ}), dev=True, only=only, make_executor=held_back)
    drain = fleet.kernel.close

    async def held_open(timeout_s: float = 2.0, *, grace_s: float = 1.0) -> None:
        await may_end.wait()
        await drain(timeout_s, grace_s=grace_s)

    monkeypatch.setattr(fleet.kernel, "close", held_open)
    starting = asyncio.create_task(fleet.start())
    names = [only] if only else ["one", "two"]
    try:
        await until(lambda: fleet.agents and all(a.state.value == "importing" for a in fleet.agents))
        async with _http(fleet) as http:

            async def readyz() -> tuple[int, str]:
                answer = await http.get("/readyz")
                assert sorted(answer.json()["agents"]) == names
                assert (await http.get("/healthz")).status_code == 200
                return answer.status_code, answer.json()["status"]

            assert await readyz() == (503, "starting")
            may_start.set()
            await starting
            assert await readyz() == (200, "ready")
            stopping = asyncio.create_task(fleet.stop())
            await until(lambda: fleet.state.value == "stopping")
            assert await readyz() == (503, "draining")
            may_end.set()
            await stopping
            with pytest.raises(httpx2.HTTPError):
                await http.get("/readyz")
    finally:
        may_start.set()
        may_end.set()
        await asyncio.wait({starting})
        await fleet.stop()


@modes
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_metrics_count_what_callers_did(tmp_path: Path, only: str | None, era: str) -> None:
    # PI-16, PR-23
    agents = {"one": agent_module("one", ("echo",)), "two": None}
    write_project(tmp_path, agents, config=ECHO, top={"host": "puck.incus"})
    async with running(tmp_path, only=only) as fleet:
        async with client(fleet, "one", era=era) as one:
            await ask(one, "hello")
            await ask(one, CALL.format("echo"))
            await one.call_tool("send_message", {"message": CALL.format("boom")})
            await one.call_tool("send_message", {"message": CALL.format("made_up")})
        values = await _samples(fleet)
        assert sum(value for key, value in values.items() if key[:2] == ("pallas_runs_total", "one")) == 4
        assert values["pallas_run_seconds_count", "one"] == 4
        assert values["pallas_run_seconds_bucket", "one", "+Inf"] == 4
        assert values["pallas_loop_steps_total", "one", "llm"] >= 4
        assert values["pallas_tool_calls_total", "one", "completed", "echo", "echo"] == 1
        assert values["pallas_tool_calls_total", "one", "failed", "echo", "boom"] == 1
        assert values["pallas_agent_health", "one"] == 1
        port = fleet.project.registry_port
        instance = urlsplit(fleet.agents[0].url).netloc if only else f"puck.incus:{port}"
        assert values["daedalus_agent_health", "one", instance] == 1
        assert values["pallas_downstream_health", "one", "echo"] == 1
        for gauge in ("pallas_runs_in_flight", "pallas_runs_queued", "pallas_runs_waiting"):
            assert values[gauge, "one"] == 0
        assert ("pallas_agent_health", "two") in values or only


async def test_stopped_loops_and_the_credentials_of_hops_are_counted(tmp_path: Path) -> None:
    # PR-23, PR-24
    again = "call: [{tool: shop__note, arguments: {text: again}}]"
    async with dials(era="both") as (shop,):
        server = {"url": shop.url, "headers": {"Authorization": "Bearer planted-77"}}
        write_project(
            tmp_path,
            {"one": agent_module("one", ("shop",))},
            **offline_model(
                f"rules:\n  - when: {{last: user}}\n    {again}\n  - {again}\n",
                config={"mcp": {"servers": {"shop": server}}},
            ),
        )
        async with running(tmp_path) as fleet:
            async with client(fleet, "one") as one:
                await ask(one, "go round in circles")
            values = await _samples(fleet)
        assert values["pallas_agent_loop_aborted_total", "one", "repeat"] == 1
        assert values["pallas_tool_calls_total", "one", "completed", "shop", "note"] == 3
        assert values["pallas_auth_hops_total", "one", "shop", "configured"] >= 3
        assert values["pallas_tokens_total", "one", "in"] > 0
        assert values["pallas_tokens_total", "one", "out"] > 0
        assert "planted-77" not in repr(values)


async def test_runs_that_wait_are_seen_in_the_queues(tmp_path: Path) -> None:
    # PR-23
    write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",))},
        config=ECHO,
        keys={"one": {"max_instances": 1}},
    )
    async with running(tmp_path) as fleet, client(fleet, "one") as one:
        slow = CALL.format("slow")
        tasks = [
            asyncio.create_task(
                one.call_tool("send_message", {"message": slow, "conversation_id": f"conversation-{name}"})
            )
            for name in ("a", "b", "c", "c")
        ]
        (agent,) = fleet.agents

        def queues() -> tuple[int, int, int]:
            now = agent.snapshot()
            return now.runs_active, now.runs_queued, now.runs_waiting

        async def scraped() -> tuple[float, ...]:
            values = await _samples(fleet)
            names = ("pallas_runs_in_flight", "pallas_runs_queued", "pallas_runs_waiting")
            return tuple(values[name, "one"] for name in names)

        await until(lambda: queues() == (3, 1, 2), timeout=30)
        assert await scraped() == (3, 1, 2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until(lambda: queues() == (0, 0, 0), timeout=30)
        assert await scraped() == (0, 0, 0)
        assert (await _samples(fleet))["pallas_runs_total", "one", "cancelled"] == 4


@modes
async def test_the_pages_stand_behind_the_guard_and_repeat_nothing(tmp_path: Path, only: str | None) -> None:
    # PR-8, PR-23
    write_project(tmp_path, {"one": None})
    async with running(tmp_path, only=only) as fleet, _http(fleet) as http:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await http.get(path)).status_code == 200
            assert (await http.get(path, headers={"Host": "evil.example"})).status_code == 421
            assert (await http.get(path, headers={"Origin": "http://evil.example"})).status_code == 403
            assert (await http.post(path, json={})).status_code == 405
            answer = await http.get(path, params={"x": "canary-77"}, headers={"X-A": "canary-77"})
            assert "canary-77" not in answer.text + repr(answer.headers)


async def test_within_a_fleet_an_agents_port_serves_its_agent_alone(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": None})
    async with running(tmp_path) as fleet, httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        origin = fleet.agents[0].url.removesuffix("/mcp")
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await http.get(origin + path)).status_code == 404
