"""How often a failing model is asked and what the caller learns, for every kind of provider."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.failing_models import FailingModels, failing_models
from support.failing_models import soon_again as soon_again
from support.live import agent_module, client, running, write_project
from support.ports import free_ports

from pallas import aiohttp_transport
from pallas.fleet.fleet import Fleet
from pallas.model import ModelRetry

MODELS = {
    "chat": "generic.qwen3",
    "openai": "openai.gpt-4.1",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-5-mini",
    "gemini": "google.gemini-2.5-flash",
}
ATTEMPTS = 3  # llm_retries is 2 where nothing is said
EXPECTED = {
    "500": ("UPSTREAM", True, ATTEMPTS, "HTTP 500"),
    "503": ("UPSTREAM", True, ATTEMPTS, "HTTP 503"),
    "408": ("UPSTREAM", True, ATTEMPTS, "HTTP 408"),
    "soon": ("UPSTREAM", True, ATTEMPTS, "rate limit, HTTP 429"),
    "later": ("UPSTREAM", True, 1, "rate limit, HTTP 429"),
    "400": ("UPSTREAM", False, 1, "HTTP 400"),
    "404": ("UPSTREAM", False, 1, "HTTP 404"),
    "401": ("AUTH", False, 1, "HTTP 401"),
    "drop": ("TRANSPORT", True, ATTEMPTS, "closed the connection before it had answered"),
    "reset": ("TRANSPORT", True, ATTEMPTS, "closed the connection before it had answered"),
    "head": ("TRANSPORT", True, ATTEMPTS, "closed the connection before it had answered"),
    "half": ("TRANSPORT", True, ATTEMPTS, "answer broke off after 4 characters: the connection was lost"),
}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("soon_again")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[FailingModels]:
    async with failing_models() as found:
        yield found


def _settings(base: str) -> dict[str, Any]:
    """The configuration of fast-agent that asks every provider at ``base``."""
    places = {name: base if name in ("anthropic", "google") else f"{base}/v1" for name in _kinds()}
    return {name: {"api_key": "none", "base_url": place} for name, place in places.items()}


def _kinds() -> list[str]:
    return [model.partition(".")[0] for model in MODELS.values()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, behind: FailingModels) -> AsyncIterator[Fleet]:
    agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
    root = write_project(tmp_path_factory.mktemp("attempts"), agents, config=_settings(behind.base))
    async with running(root) as found:
        yield found


async def _failures(fleet: Fleet, name: str, *messages: str) -> list[dict[str, Any]]:
    """The errors that an agent answers to these messages, which it gets at the same time."""
    async with client(fleet, name) as one:
        asked = (one.call_tool("send_message", {"message": each}) for each in messages)
        results = await asyncio.gather(*asked)
    for result in results:
        assert result.is_error, result
    return [json.loads(result.content[0].text) for result in results]  # type: ignore[union-attr]


@pytest.mark.slow
async def test_a_failing_call_is_made_as_often_as_llm_retries_says_and_tells_what_it_was(
    fleet: Fleet, behind: FailingModels
) -> None:
    # DR-22
    cases = {name: [what for what in EXPECTED if what != "half" or name == "chat"] for name in MODELS}
    answers = await asyncio.gather(
        *(
            _failures(fleet, name, *(f"fail={what} by={name}" for what in whats))
            for name, whats in cases.items()
        )
    )
    bodies = {
        (what, name): body
        for (name, whats), each in zip(cases.items(), answers, strict=True)
        for what, body in zip(whats, each, strict=True)
    }
    found = {
        case: (body["data"]["type"], body["data"]["retryable"], behind.requests[case])
        for case, body in bodies.items()
    }
    assert found == {case: EXPECTED[case[0]][:3] for case in bodies}
    for (what, _), body in bodies.items():
        assert EXPECTED[what][3] in body["error"]
        assert "timed out" not in body["error"]
        assert "127.0.0.1" not in body["error"]


@pytest.mark.slow
async def test_a_refused_connection_is_no_timeout(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # DR-22
    monkeypatch.setattr(aiohttp_transport, "STALE_AFTER", -1.0)
    (nobody,) = free_ports(1)
    agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
    config = _settings(f"http://127.0.0.1:{nobody}")
    async with running(write_project(tmp_path_factory.mktemp("refused"), agents, config=config)) as fleet:
        answers = await asyncio.gather(*(_failures(fleet, name, "hi") for name in MODELS))
    for (body,) in answers:
        assert (body["data"]["type"], body["data"]["retryable"]) == ("TRANSPORT", True)
        assert (
            "the model's provider cannot be reached: connection refused; check its base_url" in body["error"]
        )
        assert "timed out" not in body["error"].lower()


def _retries(fleet: Fleet) -> list[ModelRetry]:
    return [event for event in fleet.hub.since(0).events if isinstance(event, ModelRetry)]


@pytest.mark.parametrize("era", ["2026-07-28", "legacy"])
async def test_an_answer_that_breaks_off_is_shown_once_and_each_retry_is_an_event(
    fleet: Fleet, behind: FailingModels, era: str
) -> None:
    lines: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    before, name = len(_retries(fleet)), "modern" if era[0] == "2" else "handshake"
    async with client(fleet, "chat", era=era) as connected:
        message = {"message": f"fail=half by={name}", "stream_text": True}
        result = await connected.call_tool("send_message", message, progress_callback=hear)
    assert result.is_error
    retries = _retries(fleet)[before:]
    assert [(each.retry, each.retries, each.reason, each.characters) for each in retries] == [
        (1, 2, "the connection broke off", 4),
        (2, 2, "the connection broke off", 4),
    ]
    assert {each.agent for each in retries} == {"chat"}
    assert [line for line in lines if " » " in line] == ["chat » Well"]
    assert behind.requests["half", name] == ATTEMPTS
