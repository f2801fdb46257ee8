"""Providers that cannot answer, and runs that fail: the health of the agents that use them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving
from support.live import ERAS, agent_module, ask, client, running, write_project
from support.ports import free_ports
from support.waiting import until

from pallas.cli.check import check
from pallas.config import export_env
from pallas.fleet.fleet import Fleet
from pallas.fleet.health_monitor import CheckIntervals
from pallas.model import HealthStatus

KEY = "sk-canary-5e1f7a"
NEVER = CheckIntervals(health=3600, confirm=3600, providers=3600, retry=3600)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GROQ_API_KEY", "MOONSHOT_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class Models:
    """Providers below one address: ``lists``, ``silent`` about its models, ``closed`` for other keys."""

    def __init__(self) -> None:
        self.fails = False

    async def __call__(self, fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        kind = request.url.path.split("/")[1]
        if kind == "closed" and request.headers.get("authorization") != f"Bearer {KEY}":
            return JSONResponse({"error": {"message": "bad key"}}, 401)
        if request.method == "GET":
            listed = JSONResponse({"data": [{"id": "good"}, {"id": "better"}]})
            return listed if kind != "silent" else JSONResponse({"error": "no such path"}, 404)
        if self.fails:
            return JSONResponse({"error": {"message": "kaput"}}, 400)
        message = {"role": "assistant", "content": f"I am {body['model']}"}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        return JSONResponse({"id": "1", "object": "chat.completion", "model": "m", "choices": choices})


@asynccontextmanager
async def fleet_of(
    root: Path, models: Mapping[str, str], blocks: Mapping[str, Mapping[str, str]], **more: Any
) -> AsyncIterator[Fleet]:
    """A fleet with an agent for each model, by name, and these blocks of providers."""
    agents = {name: agent_module(name, model=model) for name, model in models.items()}
    write_project(root, agents, config={**blocks, "llm_retries": 0})
    async with running(root, **more) as fleet:
        yield fleet


def shown(fleet: Fleet, name: str) -> tuple[str, str]:
    """Status and message of an agent, as the fleet shows them."""
    health = next(each.health for each in fleet.snapshot().agents if each.name == name)
    return health.status.value, health.message


@pytest.mark.slow
async def test_every_provider_that_an_agent_uses_is_checked_and_only_its_users_are_degraded(
    tmp_path: Path,
) -> None:
    # PR-20, PR-21, PR-22
    (dead,) = free_ports(1)
    provider = FakeDownstream(Models())
    async with serving(provider) as origin:
        models = {
            "dead": "generic.good",
            "nokey": "groq.good",
            "unknown": "openai.goood",
            "right": "openai.good",
            "unlisted": "moonshot.any",
            "refused": "openrouter.good",
            "cloud": "bedrock.amazon.nova-lite-v1:0",
            "ours": "passthrough",
        }
        blocks = {
            "generic": {"base_url": f"http://127.0.0.1:{dead}/v1"},
            "groq": {"base_url": f"{origin}/lists/v1"},
            "openai": {"base_url": f"{origin}/lists/v1", "api_key": "k"},
            "moonshot": {"base_url": f"{origin}/silent/v1", "api_key": "k"},
            "openrouter": {"base_url": f"{origin}/closed/v1", "api_key": "wrong"},
        }
        async with fleet_of(tmp_path, models, blocks, pace=NEVER) as fleet:
            wrong = {
                "dead": f"LLM: generic: cannot connect to 127.0.0.1:{dead} (ConnectError)",
                "nokey": "LLM: groq: GROQ_API_KEY is not set. Put it into .env; send SIGHUP or start again "
                "to use it.",
                "unknown": "LLM: openai.goood: model 'goood' not found (did you mean good?)",
                "refused": "LLM: openrouter: the API key was refused (HTTP 401); correct "
                "openrouter.api_key in fastagent.config.yaml:17",
                "cloud": "LLM: bedrock: there are no AWS credentials; set AWS_PROFILE, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
            }
            await until(lambda: all(shown(fleet, name)[1] == text for name, text in wrong.items()))
            states = {name: shown(fleet, name)[0] for name in models}
            assert states == {name: "degraded" if name in wrong else "ok" for name in models}
            for era in ERAS:
                async with client(fleet, "nokey", era=era) as one:
                    (block,) = (await one.call_tool("get_health", {})).content
                    told = json.loads(block.text)  # type: ignore[union-attr]
                    assert (told["status"], told["message"]) == ("degraded", wrong["nokey"])
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                url = fleet.registry_url.partition("/.well-known")[0]
                conditions = (await http.get(f"{url}/readyz")).json()["conditions"]
            assert {name: each.get("reason") for name, each in conditions.items()} == {
                name: wrong.get(name) for name in models
            }
            # Nobody was asked for an answer, and each address once however many agents use it.
            asked = [seen.path for seen in provider.seen]
            assert sorted(set(asked)) == ["/closed/v1/models", "/lists/v1/models", "/silent/v1/models"]
            assert {seen.method for seen in provider.seen} == {"GET"}


async def test_the_check_of_a_project_says_the_same_without_a_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    provider = FakeDownstream(Models())
    async with serving(provider) as origin:
        models = {
            "nokey": "groq.good",
            "unknown": "generic.goood",
            "right": "generic.good",
            "one": "passthrough",
        }
        agents = {name: agent_module(name, model=model) for name, model in models.items()}
        config = {"generic": {"base_url": f"{origin}/lists/v1"}, "default_model": "moonshot.any"}
        config["moonshot"] = {"base_url": f"{origin}/silent/v1", "api_key": "${PALLAS_TEST_UNSET}"}
        write_project(tmp_path, agents, config=config)
        assert await asyncio.to_thread(check, tmp_path) == 0
        offline = capsys.readouterr().err.splitlines()
        assert provider.seen == []
        assert await asyncio.to_thread(check, tmp_path, ask=True) == 0
        told = [line for line in capsys.readouterr().err.splitlines() if line not in offline]
    assert told == [
        "agents/nokey.py:7: warning: agents.nokey.model: groq: GROQ_API_KEY is not set. Put it into .env.",
        "agents/unknown.py:7: warning: agents.unknown.model: generic.goood: model 'goood' not found "
        "(did you mean good?)",
    ]
    assert not any("PALLAS_TEST_UNSET" in line for line in offline)  # no agent uses the default model
    assert [seen.path for seen in provider.seen] == ["/lists/v1/models"]


async def test_a_key_that_is_put_into_env_is_used_as_soon_as_it_is_saved(tmp_path: Path) -> None:
    # PR-10, PR-22
    async with serving(FakeDownstream(Models())) as origin:
        block = {"base_url": f"{origin}/closed/v1"}
        try:
            async with fleet_of(tmp_path, {"one": "groq.good"}, {"groq": block}, watch=True) as fleet:
                cure = "LLM: groq: GROQ_API_KEY is not set. Put it into .env; it is used as soon as you save."
                await until(lambda: shown(fleet, "one") == ("degraded", cure))
                async with client(fleet, "one") as one:
                    answer = await one.call_tool("send_message", {"message": "x"})
                    (block_,) = answer.content
                    assert "GROQ_API_KEY is not set; put it into .env" in block_.text  # type: ignore[union-attr]
                    assert shown(fleet, "one") == ("degraded", f"{cure} Failed: the last run")
                    (tmp_path / ".env").write_text(f"GROQ_API_KEY={KEY}\n")
                    await until(lambda: shown(fleet, "one") == ("ok", ""))
                    assert await ask(one, "x") == "I am good"
        finally:
            (tmp_path / ".env").unlink(missing_ok=True)
            export_env(tmp_path)
    assert "GROQ_API_KEY" not in os.environ


async def test_failed_runs_are_counted_and_degrade_an_agent_until_one_succeeds(tmp_path: Path) -> None:
    models = Models()
    async with serving(FakeDownstream(models)) as origin:
        block = {"base_url": f"{origin}/lists/v1"}
        async with (
            fleet_of(tmp_path, {"one": "generic.good"}, {"generic": block}, pace=NEVER) as fleet,
            client(fleet, "one") as one,
        ):
            assert await ask(one, "x") == "I am good"
            models.fails = True
            for runs in ("run", "2 runs"):
                await one.call_tool("send_message", {"message": "x"})
                await until(lambda: shown(fleet, "one")[1].startswith(f"Failed: the last {runs} ("))  # noqa: B023
            assert shown(fleet, "one")[0] == HealthStatus.DEGRADED
            assert "the model's provider failed, HTTP 400" in shown(fleet, "one")[1]
            # A caller's own mistake is no failure of the agent.
            await one.call_tool("send_message", {"message": "x", "params": {"tools_allowlist": ["none"]}})
            assert shown(fleet, "one")[1].startswith("Failed: the last 2 runs")
            models.fails = False
            await ask(one, "x")
            await until(lambda: shown(fleet, "one") == ("ok", ""))
