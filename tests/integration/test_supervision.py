"""Agents that fail while a fleet serves: started again, given up, mended by hand; what everyone is told."""

import asyncio
import json
from pathlib import Path
from time import time
from typing import Any

import pytest
from mcp import Client
from support.executors import Gate, echo
from support.live import MODERN_FIRST, ask, client, verbs_over, write_project
from support.mortal import Fates, metrics, mortals, moves, page, reaches, shown, told
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.fleet.supervisor import agent_lifecycle
from pallas.model import AgentChanged, AgentState, Fault, FaultType, HealthStatus, RunFinished, Verb

ERA = pytest.mark.parametrize("era", MODERN_FIRST)
QUICK = {"restart": {"backoff": 0.05, "backoff_max": 0.2, "crashes": 3}}
SLOW = {"restart": {"backoff": 600, "backoff_max": 600, "crashes": 3}}
NEVER = {"restart": "never"}
AWAY = "the broker does not answer"


def project(root: Path, keys: dict[str, Any] | None = None, **more: Any) -> Path:
    return write_project(root, {"one": None}, keys={"one": QUICK if keys is None else keys}, **more)


def away() -> Fault:
    return Fault(FaultType.TRANSPORT, AWAY)


async def refused(caller: Client) -> dict[str, Any]:
    """The body of the Fault that a message gets."""
    result = await caller.call_tool("send_message", {"message": "hello"})
    assert result.is_error
    body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
    return body


async def health(caller: Client) -> dict[str, Any]:
    result = await caller.call_tool("get_health", {})
    body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
    return body


async def registry_state(fleet: Fleet) -> str:
    (entry,) = (await page(fleet, "/v0.1/servers")).json()["servers"]
    state: str = entry["server"]["_meta"]["io.modelcontextprotocol.registry/publisher-provided"]["state"]
    return state


@ERA
async def test_an_agent_whose_executor_dies_is_started_again_and_its_runs_are_told(
    tmp_path: Path, era: str
) -> None:
    fates, gate = Fates(), Gate()
    async with mortals(project(tmp_path), {"one": fates}) as fleet, client(fleet, "one", era=era) as caller:
        fates.made[0].answer = gate.answer
        call = asyncio.create_task(refused(caller))
        await gate.reached.wait()
        mark = fleet.hub.seq
        fates.made[0].die("its process was killed by SIGSEGV")
        body = await asyncio.wait_for(call, 60)
        assert body["error"].startswith(
            "one failed while it answered this: its process was killed by SIGSEGV"
        )
        assert body["data"]["type"] == "TRANSPORT"
        assert body["data"]["retryable"] is True
        assert 0 < body["data"]["retry_after"] <= 0.2
        assert gate.cancelled
        await reaches(fleet, AgentState.READY)
        assert moves(fleet, after=mark) == [AgentState.BACKOFF, AgentState.CONNECTING, AgentState.READY]
        (finished,) = [each for each in fleet.hub.since(mark).events if isinstance(each, RunFinished)]
        assert (finished.outcome, "SIGSEGV" in finished.fault) == ("error", True)
        fates.made[0].answer = echo
        assert await ask(caller, "hello") == "0:hello"
        agent = shown(fleet)
        assert (agent.crashes, agent.started_again, agent.restarts, agent.restart_at) == (1, 1, 1, None)
        assert agent.health.status is HealthStatus.OK
        assert (await metrics(fleet))["pallas_agent_restarts_total", "one"] == 1
        details = [each.detail for each in fleet.hub.since(mark).events if isinstance(each, AgentChanged)]
        assert details[0].startswith("its process was killed by SIGSEGV; it is started again in 0.0")
        assert details[0].endswith(" s (failure 1 of 3 within 300 s)")
        assert details[-1] == "ready again after 1 failure"


@ERA
async def test_while_it_waits_to_be_started_again_everyone_is_told(tmp_path: Path, era: str) -> None:
    # PI-8, PI-12
    fates = Fates()
    async with (
        mortals(project(tmp_path, SLOW), {"one": fates}) as fleet,
        client(fleet, "one", era=era) as caller,
    ):
        fates.made[0].die("its process was killed")
        agent = shown(fleet)
        assert (agent.state, agent.crashes, agent.booted) == (AgentState.BACKOFF, 1, True)
        assert not agent.ready
        assert agent.restart_at is not None
        assert 500 < agent.restart_at - agent.since <= 600
        left = agent.restart_at - time()
        body = await refused(caller)
        again = body["data"]["retry_after"]
        assert body["error"].startswith(f"one failed (its process was killed); try again in {again:g} s")
        assert (body["data"]["type"], body["data"]["retryable"]) == ("TRANSPORT", True)
        assert agent.restart_at - time() - 1 <= again <= left + 1
        found = await health(caller)
        assert found["status"] == "error"
        assert found["message"] == "Failed, is started again: its process was killed"
        assert agent.health.message == found["message"]
        assert await registry_state(fleet) == "backoff"
        ready = await page(fleet, "/readyz")
        assert ready.status_code == 200
        assert ready.json()["agents"] == {"one": "backoff"}
        conditions = ready.json()["conditions"]["one"]
        assert {key: conditions[key] for key in ("booted", "ready", "healthy", "crashes", "reason")} == {
            "booted": True,
            "ready": False,
            "healthy": False,
            "crashes": 1,
            "reason": "Failed, is started again: its process was killed",
        }
        assert conditions["restart_at"].endswith("Z")
        values = await metrics(fleet)
        assert values["pallas_agent_state", "one", "backoff"] == 1
        assert values["pallas_agent_state", "one", "ready"] == 0
        assert values["pallas_agent_booted", "one"] == 1
        assert values["pallas_agent_ready", "one"] == values["pallas_agent_healthy", "one"] == 0
        assert values["pallas_agent_crashes", "one"] == 1
        assert values["pallas_agent_restarts_total", "one"] == 0


@ERA
async def test_a_crash_loop_is_told_everywhere_and_ends_by_hand(tmp_path: Path, era: str) -> None:
    # PI-8, PI-12
    fates = Fates()
    async with mortals(project(tmp_path), {"one": fates}) as fleet, client(fleet, "one", era=era) as caller:
        for _ in range(2):
            fates.made[-1].die("out of memory")
            await reaches(fleet, AgentState.BACKOFF)
            await reaches(fleet, AgentState.READY)
        fates.made[-1].die("out of memory")
        agent = shown(fleet)
        reason = "3 failures within 300 s, the last: out of memory; correct that and start it again"
        assert (agent.state, agent.crashes, agent.restart_at) == (AgentState.CRASH_LOOP, 3, None)
        assert agent.error.startswith(reason)
        body = await refused(caller)
        assert body["error"] == f"one cannot answer: {reason}"
        assert (body["data"]["type"], body["data"]["retryable"]) == ("UPSTREAM", False)
        assert body["data"]["stage"] == "crash-loop"
        assert (await health(caller)) | {"timestamp": ""} == {
            "status": "error",
            "timestamp": "",
            "message": f"Crash loop: {reason}",
        }
        assert await registry_state(fleet) == "crash-loop"
        ready = (await page(fleet, "/readyz")).json()
        assert ready["agents"] == {"one": "crash-loop"}
        assert ready["conditions"]["one"]["reason"] == f"Crash loop: {reason}"
        values = await metrics(fleet)
        assert values["pallas_agent_state", "one", "crash-loop"] == 1
        assert values["pallas_agent_crashes", "one"] == 3
        assert told(fleet, "error") == [f"one: crash loop: {reason}"]
        starts = fates.begun
        fleet.control("one", "start")
        await reaches(fleet, AgentState.READY)
        assert fates.begun == starts + 1
        assert (shown(fleet).crashes, shown(fleet).error) == (0, "")
        assert await ask(caller, "hello") == "0:hello"


async def test_a_start_that_fails_for_a_passing_reason_is_tried_again(tmp_path: Path) -> None:
    fates = Fates(starts=[away(), Fault(FaultType.UPSTREAM, "not yet")])
    async with mortals(project(tmp_path), {"one": fates}) as fleet:
        await reaches(fleet, AgentState.READY)
        begun = [AgentState.IMPORTING, AgentState.CONNECTING]
        failed = [*begun, AgentState.BACKOFF]
        assert moves(fleet) == [*failed, *failed, *begun, AgentState.READY]
        assert (fates.begun, len(fates.made), fates.closed) == (3, 3, 2)
        assert shown(fleet).crashes == 2


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (Fault(FaultType.CONFIG, "agents/one.py:3: SyntaxError"), AgentState.ERROR),
        (Fault(FaultType.AUTH, "no usable key"), AgentState.ERROR),
        (ValueError("odd"), AgentState.ERROR),
        (Fault(FaultType.TIMEOUT, "no answer"), AgentState.BACKOFF),
        (Fault(FaultType.INTERNAL, "the run failed (RuntimeError)"), AgentState.BACKOFF),
        (ConnectionRefusedError(111, "refused"), AgentState.BACKOFF),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
async def test_only_what_may_pass_is_tried_again(tmp_path: Path, error: Exception, state: AgentState) -> None:
    # PR-7
    fates = Fates(loads=[error])
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet:
        agent = shown(fleet)
        assert agent.state is state
        assert (agent.restart_at is None) is (state is AgentState.ERROR)
        assert agent.crashes == (state is AgentState.BACKOFF)


@ERA
async def test_an_agent_that_is_never_started_again_says_so(tmp_path: Path, era: str) -> None:
    fates, gate = Fates(), Gate()
    root = project(tmp_path, NEVER)
    async with mortals(root, {"one": fates}) as fleet, client(fleet, "one", era=era) as caller:
        fates.made[0].answer = gate.answer
        call = asyncio.create_task(refused(caller))
        await gate.reached.wait()
        fates.made[0].die("out of memory")
        body = await asyncio.wait_for(call, 60)
        assert body["error"].endswith("it is not restarted automatically; send it again once it is up")
        assert "retry_after" not in body["data"]
        agent = shown(fleet)
        assert (agent.state, agent.restart_at, agent.crashes) == (AgentState.ERROR, None, 1)
        assert agent.health.message == "out of memory (restart: never)"
        await until(lambda: fates.made[0].parked == 1)  # what it left behind is let go of
        fleet.control("one", "start")
        await reaches(fleet, AgentState.READY)


async def test_a_start_that_takes_too_long_is_given_up_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = asyncio.Event()
    fates = Fates(starts=[never])

    async def done_within(seconds: float, start: asyncio.Future[Any]) -> None:
        """The first start has no time left once it hangs."""
        assert seconds == 60
        is_first = not fates.begun
        await until(lambda: start.done() or (is_first and not fates.starts))

    monkeypatch.setattr(agent_lifecycle, "done_within", done_within)
    async with mortals(project(tmp_path, {**QUICK, "start_timeout": 60}), {"one": fates}) as fleet:
        await reaches(fleet, AgentState.READY)
        assert moves(fleet)[:3] == [AgentState.IMPORTING, AgentState.CONNECTING, AgentState.BACKOFF]
        (detail,) = [
            each.detail
            for each in fleet.hub.since(0).events
            if isinstance(each, AgentChanged) and each.state is AgentState.BACKOFF
        ]
        assert detail.startswith("it was still connecting after 60 s; see what it waits for, or raise")
        assert "start_timeout at agents.yaml:" in detail
        assert (fates.closed, fates.most_at_a_time) == (1, 1)


@pytest.mark.parametrize("verb", ["start", "restart", "reload"])
async def test_a_verb_by_hand_ends_a_pending_restart_and_forgets_the_failures(
    tmp_path: Path, verb: Verb
) -> None:
    fates = Fates()
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet:
        fates.made[0].die()
        assert shown(fleet).restart_at is not None
        await until(lambda: fates.made[0].parked == 1)
        fleet.control("one", verb)
        agent = await reaches(fleet, AgentState.READY)
        assert (agent.restart_at, agent.crashes, agent.started_again) == (None, 0, 0)
        assert (fates.begun, fates.most_at_a_time) == (2, 1)


async def test_an_agent_stopped_by_hand_while_it_waits_stays_stopped(tmp_path: Path) -> None:
    fates = Fates()
    async with mortals(project(tmp_path), {"one": fates}) as fleet:
        fates.starts.append(asyncio.Event())
        fates.made[0].die()
        await until(lambda: fates.begun == 2)  # it is just being started again
        fleet.control("one", "stop")
        agent = await reaches(fleet, AgentState.STOPPED)
        assert (agent.restart_at, agent.crashes) == (None, 0)
        await until(lambda: fates.at_a_time == 0)
        assert fates.begun == 2
        assert _restarts(fleet) == []


async def test_a_verb_that_fails_leaves_a_pending_restart_alone(tmp_path: Path) -> None:
    fates = Fates()
    root = project(tmp_path, SLOW)
    async with mortals(root, {"one": fates}) as fleet:
        fates.made[0].die()
        (root / "agents.yaml").write_text("agents: [")
        fleet.control("one", "restart")
        await until(lambda: any("restart failed" in text for text in told(fleet)))
        agent = shown(fleet)
        assert (agent.state, agent.crashes) == (AgentState.BACKOFF, 1)
        assert agent.restart_at is not None


async def test_a_new_version_ends_a_pending_restart(tmp_path: Path) -> None:
    fates = Fates()
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet:
        fates.made[0].die()
        agent = fleet.agents[0]
        outcome = await agent.swap(agent.project, agent.config, force=True)
        assert outcome.outcome == "live"
        now = shown(fleet)
        assert (now.state, now.restart_at, now.crashes) == (AgentState.READY, None, 0)
        assert _restarts(fleet) == []


async def test_a_new_version_that_does_not_work_leaves_the_restart_as_it_was(tmp_path: Path) -> None:
    fates = Fates()
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet:
        fates.made[0].die()
        agent, before, asked = fleet.agents[0], shown(fleet).restart_at, time()
        assert before is not None
        fates.loads.append(Fault(FaultType.CONFIG, "agents/one.py:1: SyntaxError"))
        outcome = await agent.swap(agent.project, agent.config, force=True)
        assert outcome.outcome == "failed"
        now = shown(fleet)
        assert (now.state, now.crashes) == (AgentState.BACKOFF, 1)
        assert now.restart_at is not None
        # It waits for as long as was left before: later by no more than the new version took.
        assert before - 1 <= now.restart_at <= before + (time() - asked) + 1


async def test_a_version_that_broke_is_not_the_one_to_go_back_to(tmp_path: Path) -> None:
    fates = Fates()
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet:
        agent = fleet.agents[0]
        fates.made[0].die()
        assert (shown(fleet).version, shown(fleet).previous) == (1, 0)  # itself is nothing to go back to
        assert (await agent.swap(agent.project, agent.config, force=True)).version == 2
        fates.made[1].die("the new code crashes")
        assert shown(fleet).state is AgentState.BACKOFF
        assert (shown(fleet).version, shown(fleet).previous) == (2, 1)
        assert (await agent.rollback()).version == 1
        assert agent.executor is fates.made[0]
        now = shown(fleet)
        assert (now.state, now.version, now.previous, now.crashes) == (AgentState.READY, 1, 2, 0)


async def test_never_two_starts_of_one_agent_at_a_time(tmp_path: Path) -> None:
    fates = Fates()
    async with mortals(project(tmp_path), {"one": fates}) as fleet:
        agent = fleet.agents[0]
        for round_ in range(20):
            executor = fates.made[-1]
            if agent.state is AgentState.READY and agent.executor is executor:
                executor.die()
            fates.starts = [away()] if round_ % 3 == 0 else []
            verbs: tuple[Verb, ...] = ("start", "restart", "reload", "stop")
            fleet.control("one", verbs[round_ % 4])
            await asyncio.gather(*(agent.start() for _ in range(3)), agent.stop(), agent.start(fresh=True))
        await verbs_over(fleet)
        await agent.start()
        assert fates.most_at_a_time == 1
        assert agent.state is AgentState.READY
        alive = [each for each in fates.made if each is agent.executor]
        assert len(alive) == 1


async def test_an_executor_that_dies_before_it_takes_over_is_noticed(tmp_path: Path) -> None:
    fates = Fates()
    root = project(tmp_path)
    async with mortals(root, {"one": fates}) as fleet:
        agent = fleet.agents[0]
        going = asyncio.Event()
        fates.starts = [going]
        exchange = asyncio.create_task(agent.swap(agent.project, agent.config, force=True))
        await until(lambda: fates.at_a_time == 1)
        fates.made[-1].die("it was killed on its way")
        going.set()
        await exchange
        await until(lambda: AgentState.BACKOFF in moves(fleet))
        await reaches(fleet, AgentState.READY)
        assert shown(fleet).started_again == 1


@ERA
async def test_the_runs_of_an_earlier_version_are_told_when_that_dies(tmp_path: Path, era: str) -> None:
    fates, gate = Fates(), Gate()
    async with mortals(project(tmp_path), {"one": fates}) as fleet, client(fleet, "one", era=era) as caller:
        fates.made[0].answer = gate.answer
        call = asyncio.create_task(refused(caller))
        await gate.reached.wait()
        agent = fleet.agents[0]
        await agent.swap(agent.project, agent.config, force=True)
        fates.made[0].die("the old one was killed")
        body = await asyncio.wait_for(call, 60)
        assert "the old one was killed" in body["error"]
        assert body["data"]["retryable"] is True
        assert shown(fleet).state is AgentState.READY
        assert AgentState.BACKOFF not in moves(fleet)
        assert await ask(caller, "hello") == "0:hello"


@pytest.mark.parametrize("when", ["waits", "starts"])
async def test_a_fleet_that_stops_while_an_agent_is_to_be_started_again_leaves_no_task(
    tmp_path: Path, when: str
) -> None:
    before = asyncio.all_tasks()
    fates = Fates()
    async with mortals(project(tmp_path, SLOW if when == "waits" else QUICK), {"one": fates}) as fleet:
        fates.starts.append(asyncio.Event())
        fates.made[0].die()
        if when == "starts":
            await until(lambda: fates.begun == 2)
        assert _restarts(fleet)
    await until(lambda: not asyncio.all_tasks() - before)
    assert shown(fleet).state is AgentState.STOPPED


async def test_a_message_that_waits_for_its_turn_is_refused_once_its_agent_is_down(tmp_path: Path) -> None:
    fates, gate = Fates(), Gate()
    async with mortals(project(tmp_path, SLOW), {"one": fates}) as fleet, client(fleet, "one") as caller:
        fates.made[0].answer = gate.answer

        async def say(message: str) -> dict[str, Any]:
            arguments = {"message": message, "conversation_id": "c"}
            result = await caller.call_tool("send_message", arguments)
            assert result.is_error
            body: dict[str, Any] = json.loads(result.content[0].text)  # type: ignore[union-attr]
            return body

        first = asyncio.create_task(say("first"))
        await gate.reached.wait()
        second = asyncio.create_task(say("second"))
        await until(lambda: shown(fleet).runs_queued == 1)
        fates.made[0].die()
        assert "failed while it answered this" in (await asyncio.wait_for(first, 60))["error"]
        waiting = await asyncio.wait_for(second, 60)
        assert waiting["data"]["stage"] == "backoff"
        assert waiting["data"]["retryable"] is True


def _restarts(fleet: Fleet) -> list[str]:
    """Restarts that wait or are under way."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("restart ")]
