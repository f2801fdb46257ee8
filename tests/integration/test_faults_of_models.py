"""Faults that are injected into requests to models show as real ones do: in answer, feed, health and log."""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.clocks import expire
from support.failing_models import failing_models
from support.failing_models import soon_again as soon_again
from support.live import ERAS, agent_module, client, running, write_project
from support.offline import model_record, offline_project
from support.providers import MODELS
from support.replayed import assert_same, recorded, replaying
from support.waiting import until

from pallas.executors.faults.fault_injection import FaultInjection
from pallas.fleet.fleet import Fleet
from pallas.model import Health, HealthStatus, ModelRetry, Notice
from pallas.model.fault_rules import FaultKind, FaultPlan, FaultRule

REAL: dict[FaultKind, str] = {
    "401": "401", "429": "soon", "500": "500", "dropped": "drop", "cut": "half", "garbage": "garbage",
}  # fmt: skip
"""What the server of failing models does where the same fault is not injected."""
CHATS = ("chat", "openai")
SCRIPT = 'rules: [{when: {last: user}, say: "three lamps"}]'

pytestmark = [
    pytest.mark.usefixtures("forked_children"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("soon_again"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with failing_models() as behind:
        kinds = [model.partition(".")[0] for model in MODELS.values()]
        places = {
            kind: behind.base if kind in ("anthropic", "google") else f"{behind.base}/v1" for kind in kinds
        }
        config = {kind: {"api_key": "none", "base_url": place} for kind, place in places.items()}
        agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
        root = write_project(tmp_path_factory.mktemp("faults"), agents, config=config)
        async with running(root) as found:
            yield found


def retries(fleet: Fleet) -> list[ModelRetry]:
    return [event for event in fleet.hub.since(0, 100_000).events if isinstance(event, ModelRetry)]


async def failure(
    fleet: Fleet, name: str, message: str, caplog: pytest.LogCaptureFixture, era: str
) -> dict[str, Any]:
    """All that is said of a run that fails, without what a provider said itself, and without counts."""
    before, known = len(retries(fleet)), health_of(fleet, name).message
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pallas"):
        async with client(fleet, name, era=era) as connected:
            result = await connected.call_tool("send_message", {"message": message})
    assert result.is_error, result
    body = json.loads(result.content[0].text)  # type: ignore[union-attr]
    await until(lambda: health_of(fleet, name).message != known)
    health = health_of(fleet, name)
    return {
        "answer": (_plain(body["error"]), body["code"], body["data"]),
        "feed": [(each.reason, each.retry, each.retries, each.wait) for each in retries(fleet)[before:]],
        "health": (health.status, health.message.partition("Failed: ")[2].partition(" (")[2]),
        "log": [_plain(each.getMessage()) for each in caplog.records if _is_told(each)],
    }


def health_of(fleet: Fleet, name: str) -> Health:
    return fleet.snapshot().agents[list(MODELS).index(name)].health


def _is_told(record: logging.LogRecord) -> bool:
    """Whether a record is ours and of the run: fast-agent's depend on what ran before in this process, and
    how long the loop was blocked on the machine.
    """
    is_ours = record.name.startswith("pallas") and not record.name.endswith("loop_watch")
    return is_ours and "provider check" not in record.msg


def _plain(text: str) -> str:
    """A text without what the provider said, and without counts of characters and the id of the run."""
    return re.sub(r"\d+ characters|run \w+ error in .*? s,|\)$", "", text.partition(" (")[0])


# The server of failing models knows one form of a stream.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name in MODELS for what in REAL if what != "cut" or name in CHATS]
)
async def test_a_fault_shows_as_the_real_one(
    fleet: Fleet, name: str, what: FaultKind, caplog: pytest.LogCaptureFixture
) -> None:
    era = ERAS[list(REAL).index(what) % 2]
    real = await failure(fleet, name, f"fail={REAL[what]} by={name}", caplog, era)
    again = 0.0 if what == "429" else None
    injection = FaultInjection(FaultPlan((FaultRule("*", what, rate=1.0, retry_after=again),)))
    injection.install()
    try:
        found = await failure(fleet, name, "fail=404 by=nobody", caplog, era)
    finally:
        injection.uninstall()
    found["health"] = found["health"][0], re.sub(r"\d+ char", "4 char", found["health"][1])
    assert found == real


@pytest.mark.slow
@pytest.mark.parametrize("name", ["messages", "responses", "gemini"])
async def test_a_stream_of_each_provider_is_cut_in_the_middle_of_its_text(
    fleet: Fleet, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    injection = FaultInjection(FaultPlan((FaultRule(MODELS[name], "cut", rate=1.0),)))
    injection.install()
    try:
        found = await failure(fleet, name, "hi", caplog, ERAS[0])
    finally:
        injection.uninstall()
    assert found["answer"][0].startswith("the model's answer broke off after ")
    assert [each[0] for each in found["feed"]] == ["the connection broke off"] * 2


async def ask(fleet: Fleet, era: str = ERAS[0]) -> str:
    async with client(fleet, "desk", era=era) as desk:
        result = await desk.call_tool("send_message", {"message": "How many?"})
    return "".join(getattr(block, "text", "") for block in result.content)


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_an_agent_copes_with_a_fault_of_one_call(tmp_path: Path, isolation: str) -> None:
    rules = FaultRule("scripted", "429", at=(1, 3), retry_after=0.0), FaultRule("generic.*", "cut", at=(5,))
    root = offline_project(tmp_path / "p", {"desk": None}, SCRIPT, keys={"desk": {"isolation": isolation}})
    async with running(root, faults=FaultPlan(rules, "faults.yaml")) as fleet:
        for era in ERAS:
            assert await ask(fleet, era) == "three lamps"
        assert await ask(fleet) == "three lamps"
        assert [each.reason for each in retries(fleet)] == [
            "HTTP 429", "HTTP 429", "the connection broke off",
        ]  # fmt: skip
        # What is injected is not sent.
        assert model_record(fleet).calls == 3
        assert fleet.snapshot().agents[0].health.status is HealthStatus.OK
        notices = [each for each in fleet.hub.since(0).events if isinstance(each, Notice)]
        assert [each.text for each in notices if each.level == "warning"] == [
            "faults are injected into calls of models and tools: 429 to scripted at call 1, 3; "
            "cut to generic.* at call 5 (faults.yaml)"
        ]


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_faults_are_injected_into_one_replay_of_a_recording(tmp_path: Path, isolation: str) -> None:
    root = offline_project(tmp_path / "p", {"desk": None}, SCRIPT, keys={"desk": {"isolation": isolation}})
    recording = await recorded(root, "desk", "How many?")
    later = FaultRule("scripted", "429", at=(1,), retry_after=30.0)
    async with replaying(root, recording) as fleet:
        # The answer to the retry is the recorded one; no time passes.
        outcome = await fleet.replay(faults=FaultPlan((later,)))
        assert_same(outcome)
        (step,) = outcome.recording.first.steps
        assert [each.status for each in step.step.attempts] == [429, 200]
        outcome = await fleet.replay()
        assert_same(outcome)
        assert len(outcome.recording.first.steps[0].step.attempts) == 1
        outcome = await fleet.replay(faults=FaultPlan((FaultRule("*", "dropped", rate=1.0),)))
        assert not outcome.is_miss
        assert "closed the connection before it had answered" in outcome.fault
        # A slow answer fails where it is later than the request waits, without that wait.
        outcome = await fleet.replay(faults=FaultPlan((FaultRule("*", "slow", rate=1.0, seconds=3600),)))
        assert "did not answer in time" in outcome.fault


def injections(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the log says was injected."""
    return [each for each in caplog.records if each.getMessage().startswith("fault injected: ")]


async def test_a_slow_answer_comes_late_and_one_that_is_too_late_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = offline_project(tmp_path / "p", {"desk": None}, SCRIPT, keys={"desk": {"run_timeout": 600}})
    rules = FaultRule("scripted", "slow", at=(1,), seconds=0.01), FaultRule("*", "slow", at=(2,), seconds=600)
    with caplog.at_level(logging.INFO, "pallas"):
        async with running(root, faults=FaultPlan(rules)) as fleet:
            assert await ask(fleet) == "three lamps"
            late = asyncio.create_task(ask(fleet))
            await until(lambda: len(injections(caplog)) == 2)
            expire(fleet.kernel.in_flight)
            assert "the run took longer than 600 s" in await late
    injected = injections(caplog)
    assert injected[0].getMessage() == "fault injected: slow into call 1 of scripted"
    assert injected[0].__dict__["agent"] == "desk"
