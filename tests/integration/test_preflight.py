"""What each provider is asked before the agents start, and what is said of its answer."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, redirect, serving, status, talking
from support.ports import free_ports
from support.waiting import until

from pallas.config.kinds import BackendConfig, LlmRouting, ProviderConfig
from pallas.config.models import AgentConfig, Project
from pallas.fleet.health_monitor import CheckIntervals, ProviderChecks
from pallas.health import preflight as module
from pallas.health.preflight import TIMEOUT, ProviderReport, preflight
from pallas.health.probe import health_of
from pallas.health.provider_endpoint import ANTHROPIC_URL, OPENAI_URL, endpoint_of
from pallas.model import AgentState, HealthStatus, Notice
from pallas.telemetry.event_hub import EventHub

KEY = "sk-canary-4f9a2b7c1d"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def _project(provider: str = "", model: str = "", **settings: Any) -> Project:
    return Project(
        Path("/p"), Path("/p/agents.yaml"), "p", {}, provider=provider, model=model, settings=settings
    )


async def provider(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    """Both providers: it has the models ``good`` and ``gpt-4.1``, and wants the key of this file."""
    bearer, api_key = request.headers.get("authorization"), request.headers.get("x-api-key")
    if KEY not in (api_key, (bearer or "").removeprefix("Bearer ")):
        return JSONResponse({"error": {"message": f"bad key {KEY}"}}, 401)
    if request.url.path == "/v1/models":
        return JSONResponse({"object": "list", "data": [{"id": "good"}, {"id": "gpt-4.1"}]})
    if request.url.path.rsplit("/", 1)[-1] in ("good", "claude-sonnet-4-5"):
        return JSONResponse({"type": "model"})
    return JSONResponse({"type": "error"}, 404)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a provider should."""
    monkeypatch.setattr(module, "TIMEOUT", 60.0)


@pytest.fixture
async def fake() -> AsyncIterator[tuple[FakeDownstream, str]]:
    fake = FakeDownstream(provider)
    async with serving(fake) as origin:
        yield fake, origin


def _keys(origin: str, key: str = KEY) -> dict[str, Any]:
    return {
        "anthropic": {"api_key": key, "base_url": origin},
        "openai": {"api_key": key, "base_url": f"{origin}/v1"},
    }


Fake = tuple[FakeDownstream, str]


def test_the_limits_and_addresses_are_those_of_the_contract() -> None:  # PR-20, PR-11
    assert TIMEOUT == 5.0
    assert (ANTHROPIC_URL, OPENAI_URL) == ("https://api.anthropic.com", "https://api.openai.com/v1")


async def test_models_that_agents_may_choose_are_asked_for_as_well(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:  # DR-23
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    providers = (
        ProviderConfig("a", ("anthropic.good?reasoning=low", "anthropic.gone", "generic.any")),
        ProviderConfig("b", ("openai.gpt-4.1", "openai.gone")),
    )
    agent = AgentConfig("one", 1, "One", "One", providers=providers, default_provider="a")
    settings = _keys(fake[1])
    del settings["anthropic"]["api_key"]
    settings["generic"] = settings["openai"]
    project = replace(_project("openai", "good", **settings), agents={"one": agent})
    reports = {report.provider: report for report in await preflight(project)}
    assert {name: report.ok for name, report in reports.items()} == {
        "anthropic": True,
        "openai": True,
        "anthropic.good": True,
        "anthropic.gone": False,
        "openai.gpt-4.1": True,
        "openai.gone": False,
        "generic": True,
        "generic.any": False,
    }
    assert reports["anthropic.gone"].message == "anthropic.gone: model 'gone' not found"
    # Nobody but who asks it is to blame.
    assert [name for name, report in reports.items() if report.active] == ["openai"]


@pytest.mark.parametrize(
    ("active", "anthropic_path"),
    [("anthropic", "/v1/models/good"), ("openai", "/v1/models/claude-sonnet-4-5")],
)
async def test_each_provider_is_asked_exactly_what_the_contract_says(
    fake: Fake, active: str, anthropic_path: str
) -> None:  # PR-20
    downstream, origin = fake
    reports = await preflight(_project(active, "good", **_keys(origin)))
    assert reports == (
        ProviderReport("anthropic", active == "anthropic", True),
        ProviderReport("openai", active == "openai", True),
    )
    asked = {(seen.method, seen.path) for seen in downstream.seen}
    assert asked == {("GET", anthropic_path), ("GET", "/v1/models")}
    assert len(downstream.seen) == 2
    by_path = {seen.path: seen.headers for seen in downstream.seen}
    assert by_path[anthropic_path]["x-api-key"] == KEY
    assert by_path[anthropic_path]["anthropic-version"] == "2023-06-01"
    assert by_path["/v1/models"]["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("name", "settings", "environ", "url"),
    [
        ("openai", {}, {}, "https://api.openai.com/v1/models"),
        ("anthropic", {}, {}, "https://api.anthropic.com/v1/models/claude-sonnet-4-5"),
        (
            "openai",
            {"base_url": ""},
            {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1/"},
            "http://127.0.0.1:9/v1/models",
        ),
        ("generic", {}, {}, "http://localhost:11434/v1/models"),
        ("google", {}, {}, "https://generativelanguage.googleapis.com/v1beta/models?pageSize=1"),
        ("googleoai", {}, {}, "https://generativelanguage.googleapis.com/v1beta/openai/models"),
        ("tensorzero", {}, {}, "http://localhost:3000/health"),
        ("tensorzero", {"base_url": "http://gateway:1/openai/v1"}, {}, "http://gateway:1/health"),
        (
            "azure",
            {"resource_name": "ours"},
            {},
            "https://ours.openai.azure.com/openai/models?api-version=2024-10-21",
        ),
        (
            "azure",
            {"base_url": "http://127.0.0.1:9/", "api_version": "2025-01-01"},
            {},
            "http://127.0.0.1:9/openai/models?api-version=2025-01-01",
        ),
        ("bedrock", {}, {}, ""),
    ],
)
def test_without_an_address_the_providers_own_is_asked(
    name: str, settings: dict[str, str], environ: dict[str, str], url: str
) -> None:  # PR-11
    endpoint = endpoint_of({name: {"api_key": KEY, **settings}}, name, environ)
    assert (endpoint.request("")[0] if endpoint else "") == url


async def test_who_has_no_key_is_not_asked(fake: Fake) -> None:
    downstream, origin = fake
    for project in (
        _project(),
        _project("fast-agent", "any", openai=None),
    ):
        assert await preflight(project) == ()
    for settings in ({"base_url": f"{origin}/v1"}, {"api_key": "", "base_url": f"{origin}/v1"}, None):
        (report,) = await preflight(_project("openai", "good", openai=settings))
        assert report.message == (
            "openai: OPENAI_API_KEY is not set. Put it into .env; it is used as soon as you save."
        )
    assert downstream.seen == []


async def test_the_active_providers_key_may_come_from_the_environment(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, origin = fake
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    settings = {"openai": {"base_url": f"{origin}/v1"}}
    assert await preflight(_project("openai", "good", **settings)) == (ProviderReport("openai", True, True),)
    assert await preflight(_project("fast-agent", "good", **settings)) == ()


@pytest.mark.parametrize("name", ["openai", "anthropic"])
async def test_a_model_that_is_not_there_is_named(fake: Fake, name: str) -> None:  # PR-21
    _, origin = fake
    reports = await preflight(_project(name, "bad-model", **_keys(origin)))
    by_name = {report.provider: report for report in reports}
    assert by_name[name] == ProviderReport(name, True, False, f"{name}: model 'bad-model' not found")
    assert all(report.ok for report in reports if report.provider != name)
    health = health_of(AgentState.READY, (), by_name[name].message)
    assert (health.status, health.message) == (
        HealthStatus.DEGRADED,
        f"LLM: {name}: model 'bad-model' not found",
    )


async def test_a_part_of_a_models_name_is_not_the_model(fake: Fake) -> None:
    _, origin = fake
    for model, ok in (
        ("gpt-4.1", True),
        ("gpt-4", False),
        ("gpt-4.1.x", False),
        ("good?reasoning=low", True),
    ):
        (report,) = await preflight(_project("openai", model, openai=_keys(origin)["openai"]))
        assert report.ok is ok, model


async def test_backends_of_handlers_are_asked_and_each_address_once(fake: Fake) -> None:
    downstream, origin = fake
    backends = (
        BackendConfig("near", "generic", base_url=f"{origin}/v1", api_key=KEY),
        BackendConfig("same", "openai", base_url=f"{origin}/v1", api_key=KEY),
        BackendConfig("other", "groq", base_url=f"{origin}/v1", api_key="wrong"),
        BackendConfig("keyless", "moonshot", base_url=f"{origin}/v1"),
    )
    project = replace(_project(), llm=LlmRouting(backends=backends))
    assert {report.provider: report.message for report in await preflight(project, advice="")} == {
        "backend near": "",
        "backend same": "",
        "backend other": "backend other: the API key was refused (HTTP 401); correct its key at agents.yaml",
        "backend keyless": "backend keyless: MOONSHOT_API_KEY is not set. Put it into .env.",
    }
    assert len(downstream.seen) == 2


async def test_fifty_agents_of_one_provider_cost_one_request(fake: Fake) -> None:
    downstream, origin = fake
    project = _project("generic", "good", generic=_keys(origin)["openai"])
    reports = await preflight(project, [f"generic.{name}" for name in ("good", "gpt-4.1", "bad")] * 50)
    assert [(report.provider, report.ok) for report in reports] == [
        ("generic", True),
        ("generic.gpt-4.1", True),
        ("generic.bad", False),
    ]
    assert len(downstream.seen) == 1


@pytest.mark.parametrize(
    ("body", "model", "ok"),
    [
        (b'{"data": [{"id": "qwen3:latest"}]}', "qwen3", True),
        (b'{"data": [{"id": "qwen3:latest"}]}', "qwen3:8b", False),
        (b'{"data": [{"id": "/models/x.gguf", "owned_by": "llamacpp"}]}', "anything", True),
        (b'[{"id": "good"}]', "good", True),
        (b"<html>", "good", True),
    ],
)
async def test_lists_of_local_servers_are_understood(fake: Fake, body: bytes, model: str, ok: bool) -> None:
    downstream, origin = fake
    downstream.answer = status(200, body)
    (report,) = await preflight(_project("generic", model, generic=_keys(origin)["openai"]))
    assert report.ok is ok


async def test_a_refused_key_is_told_and_shown_nowhere(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    # PR-20
    _, origin = fake
    wrong = "sk-wrong-canary-77"
    hub = EventHub()
    providers = ProviderChecks(_project("openai", "good", **_keys(origin, wrong)), hub, lambda: None)
    with caplog.at_level(logging.DEBUG, "pallas"):
        await providers.check()
    reports = providers.reports
    assert [report.message for report in reports] == [
        "anthropic: the API key was refused (HTTP 401); correct ANTHROPIC_API_KEY in .env or the environment",
        "openai: the API key was refused (HTTP 401); correct OPENAI_API_KEY in .env or the environment",
    ]
    warnings = [record for record in caplog.records if "provider" in record.__dict__]
    assert [record.levelname for record in warnings] == ["WARNING"]  # no agent needs the other one's key
    for text in (caplog.text, repr(reports), repr(hub.since(0).events)):
        assert wrong not in text
        assert KEY not in text


async def test_other_failures_are_reports_and_never_errors(fake: Fake) -> None:  # PR-20
    downstream, origin = fake
    host = origin.removeprefix("http://")

    async def message() -> str:
        (report,) = await preflight(_project("openai", "good", openai=_keys(origin)["openai"]))
        assert not report.ok
        return report.message

    downstream.answer = status(503)
    assert await message() == f"openai: HTTP 503 from {host}"
    for body in (b"", b"<html>", b"[]", b'{"data": 3}', b'{"data": [{"name": "good"}]}', b'{"data": [[1]]}'):
        downstream.answer = status(200, body)
        assert await message() == f"openai: {host} did not answer with a list of models"
    other = FakeDownstream(provider)
    async with serving(other) as elsewhere:
        downstream.answer = redirect(307, f"{elsewhere}/v1/models")
        assert await message() == f"openai: HTTP 307 from {host}"
    assert other.seen == []


@pytest.mark.parametrize(
    ("base_url", "key", "said"),
    [
        ("http://127.0.0.1:{port}/v1", KEY, "openai: cannot connect to 127.0.0.1:{port} (ConnectError)"),
        ("http://me:hidden-77@127.0.0.1:{port}/v1", KEY, "openai: cannot connect to 127.0.0.1:{port} ("),
        ("http://127.0.0.1:{port}/v1", "line\nhidden-77", "openai: cannot connect to 127.0.0.1:{port} ("),
        ("not a url", KEY, "openai: cannot connect to its address ("),
        ("http://[::1/v1", KEY, "openai: cannot connect to its address ("),
    ],
)
async def test_an_address_or_key_that_cannot_be_used_is_told(base_url: str, key: str, said: str) -> None:
    (port,) = free_ports(1)
    settings = {"api_key": key, "base_url": base_url.format(port=port)}
    (report,) = await preflight(_project("openai", "good", openai=settings))
    assert report.message.startswith(said.format(port=port))
    assert "hidden-77" not in report.message
    assert not report.ok


async def test_a_provider_that_never_answers_costs_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # PR-20
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    async with talking(b"") as origin:
        reports = await preflight(_project("openai", "good", **_keys(origin)))
    host = origin.removeprefix("http://")
    assert [report.message for report in reports] == [
        f"anthropic: no answer from {host} within 0.3 s",
        f"openai: no answer from {host} within 0.3 s",
    ]


async def test_providers_are_asked_at_the_same_time() -> None:
    fakes = [FakeDownstream(provider, gate=asyncio.Event()) for _ in range(2)]
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(serving(fake)) for fake in fakes]
        settings = {"anthropic": _keys(first)["anthropic"], "openai": _keys(second)["openai"]}
        asking = asyncio.create_task(preflight(_project("openai", "good", **settings)))
        await until(lambda: all(fake.active for fake in fakes))
        for fake in fakes:
            assert fake.gate is not None
            fake.gate.set()
        assert all(report.ok for report in await asking)


def _watched(fake: Fake, model: str = "good") -> tuple[ProviderChecks, EventHub, list[str]]:
    """Providers that watch the fake as openai, and the problem as it was at each change."""
    _, origin = fake
    hub, said = EventHub(), list[str]()
    project = _project("openai", model, openai=_keys(origin)["openai"])
    providers = ProviderChecks(
        project, hub, lambda: said.append(providers.problem()), CheckIntervals(providers=0.01, retry=0.01)
    )
    return providers, hub, said


def _notices(hub: EventHub) -> list[tuple[str, str]]:
    return [(event.level, event.text) for event in hub.since(0).events if isinstance(event, Notice)]


async def test_a_key_that_is_revoked_later_shows_and_a_mended_one_clears(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-20, PR-21
    downstream, _ = fake
    providers, hub, said = _watched(fake)
    with caplog.at_level(logging.INFO, "pallas"):
        await providers.check()
        assert (providers.problem(), _notices(hub)) == ("", [])
        watching = asyncio.create_task(providers.watch())
        downstream.answer = status(401)
        refused = (
            "openai: the API key was refused (HTTP 401); correct OPENAI_API_KEY in .env or the environment"
        )
        await until(lambda: providers.problem() == refused)
        asked = len(downstream.seen)
        await until(lambda: len(downstream.seen) > asked + 3)
        downstream.answer = provider
        await until(lambda: providers.problem() == "")
        asked = len(downstream.seen)
        await until(lambda: len(downstream.seen) > asked + 3)
        watching.cancel()
    mended = "openai: the provider check passes again"
    # However many rounds there were: one word for each change.
    assert _notices(hub) == [("warning", refused), ("info", mended)]
    told = [record.getMessage() for record in caplog.records if "provider" in record.__dict__]
    assert told == [f"provider check failed: {refused}", mended]
    assert said == ["", refused, ""]


async def test_trouble_that_may_pass_counts_when_two_checks_meet_it(fake: Fake) -> None:
    downstream, origin = fake
    providers, hub, _ = _watched(fake)
    shown = []
    for answer in (provider, status(503), provider, status(503), status(503), provider):
        downstream.answer = answer
        await providers.check()
        shown.append(providers.problem())
    host = origin.removeprefix("http://")
    assert shown == ["", "", "", "", f"openai: HTTP 503 from {host}", ""]
    assert len(_notices(hub)) == 2
    at_once, hub, _ = _watched(fake)
    downstream.answer = status(503)
    await at_once.check()
    assert at_once.problem() == f"openai: HTTP 503 from {host}"


async def test_a_key_that_no_agent_needs_is_not_reported_until_one_does(fake: Fake) -> None:
    # PR-21
    _, origin = fake
    hub = EventHub()
    used: list[str] = []
    providers = ProviderChecks(
        _project(
            "openai", "good", openai=_keys(origin)["openai"], anthropic=_keys(origin, "no")["anthropic"]
        ),
        hub,
        lambda: None,
        used=lambda: used,
    )
    await providers.check()
    assert providers.problem() == ""
    assert _notices(hub) == []
    used.append("anthropic.good")
    await providers.check()
    refused = (
        "anthropic: the API key was refused (HTTP 401); correct ANTHROPIC_API_KEY in .env or the environment"
    )
    assert _notices(hub) == [("warning", refused)]
    assert providers.problem(["anthropic.good"]) == refused
    used.clear()
    await providers.check()
    assert providers.problem() == ""


def test_after_a_failure_the_next_check_comes_sooner_and_after_a_refused_key_backs_off() -> None:
    pace = CheckIntervals()
    waits = [pace.until_check(failures, failures) for failures in (0, 1, 2, 3, 4, 5, 10_000)]
    assert waits == [300, 30, 60, 120, 240, 300, 300]
    # A server that is out of reach may be back at any time.
    assert {pace.until_check(failures) for failures in (1, 2, 10_000)} == {pace.health}


async def test_a_check_that_breaks_ends_neither_the_watch_nor_the_fleet(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    downstream, _ = fake
    providers, hub, _ = _watched(fake, "bad-model")
    calls = 0

    async def broken(*_: Any, **__: Any) -> tuple[ProviderReport, ...]:
        nonlocal calls
        calls += 1
        raise RuntimeError("boom") if calls < 3 else asyncio.CancelledError

    monkeypatch.setattr("pallas.fleet.health_monitor.preflight", broken)
    with pytest.raises(asyncio.CancelledError):
        await providers.watch()
    assert (calls, providers.reports, downstream.seen) == (3, (), [])
    assert _notices(hub) == []
