"""Limits of agents and LLMs that are made over the API: what a model can write, and an agent's loop."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
import yaml
from support.bridged import tell
from support.live import MODERN_FIRST, agent_module, client, running, write_project
from support.providers import Provider, Reply, provider
from support.virtual import virtual

from pallas.cli.app import app
from pallas.cli.resources.apply_documents import apply
from pallas.cli.resources.fleet_requests import FleetLocation
from pallas.fleet.fleet import Fleet

NOTICE = "max_tokens 50000 went to the provider as it is: how much nobody-declared can write is not known"

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


def _answer(asked: Any) -> Reply:
    return Reply(calls=[("echo__echo", {"text": "x"})]) if asked.tools else Reply("ok")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[Provider]:
    async with provider(_answer) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, behind: Provider) -> AsyncIterator[Fleet]:
    root = tmp_path_factory.mktemp("limits")
    model = {"model": "generic.nobody-declared"}
    write_project(
        root,
        {name: agent_module(name, **model) for name in ("here", "apart", "seeing")},
        keys={"apart": {"isolation": "process"}, "seeing": {"model_capabilities": {"vision": True}}},
        config={
            **behind.config("generic.nobody-declared"),
            "mcp": {"servers": {"echo": {"command": "python", "args": ["echo_server.py"]}}},
        },
    )
    async with running(root, database=f"sqlite:///{root}/ledger.sqlite3") as found:
        yield found


async def _api(fleet: Fleet, method: str, path: str, body: Any = None) -> dict[str, Any]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1{path}"
        response = await http.request(method, url, json=body)
    assert response.status_code < 300, response.text
    return dict(response.json())


async def _made(fleet: Fleet, behind: Provider, name: str, agent: Any = None, **llm: Any) -> None:
    """An LLM whose model nobody has declared, and an agent of it, both of that name."""
    base = {"type": "generic", "model": "nobody-declared", "url": f"{behind.base}/v1", "probe": False}
    await _api(fleet, "POST", "/llms", {"name": name, **base, **llm})
    await _api(fleet, "POST", "/agents", {"name": name, "llm": name, **(agent or {})})


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_number_without_a_known_limit_passes_and_the_result_says_so(
    fleet: Fleet, behind: Provider, era: str
) -> None:
    # AG-9
    name = f"free-{era[:4]}"
    await _made(fleet, behind, name, extra={"vision": True})
    for agent in (name, "here", "apart", "seeing"):
        behind.asked.clear()
        async with client(fleet, agent, era=era) as connected:
            for params in ({"max_tokens": 50_000}, {}):
                meta: Any = {"local.pallas/params": params}
                result = await connected.call_tool("send_message", {"message": "hi"}, meta=meta)
                assert not result.is_error, result
                notices = (result.meta or {}).get("local.pallas/notices", [])
                assert [each.startswith(NOTICE) for each in notices] == [True] * len(params)
        assert behind.asked[0].body["max_tokens"] == 50_000
    said = await _api(fleet, "POST", f"/agents/{name}/chat", {"message": "hi", "max_tokens": 50_000})
    assert said["notices"][0].startswith(NOTICE)
    async with virtual(fleet, "/mcp", era=era) as bridge:
        given = {"agentId": name, "prompt": "hi", "metadata": {"runtimeParams": {"maxTokens": 50_000}}}
        assert (await tell(bridge, "tasks_delegate", **given))["notices"][0].startswith(NOTICE)


async def test_what_an_llm_says_that_its_model_can_write_is_the_most_that_is_asked_for(
    fleet: Fleet, behind: Provider
) -> None:
    # AG-9
    await _made(fleet, behind, "bound", maxOutputTokens=500)
    behind.asked.clear()
    for wanted, sent in ((50_000, 500), (100, 100)):
        said = await _api(fleet, "POST", "/agents/bound/chat", {"message": "hi", "max_tokens": wanted})
        assert "notices" not in said
        assert behind.asked[-1].body["max_tokens"] == sent
    # A limit that is the same as the default holds as well, and one can be taken back.
    await _api(fleet, "PATCH", "/llms/bound", {"maxOutputTokens": 16_384})
    await _api(fleet, "POST", "/agents/bound/chat", {"message": "hi", "max_tokens": 50_000})
    assert behind.asked[-1].body["max_tokens"] == 16_384
    assert (await _api(fleet, "GET", "/llms/bound"))["maxOutputTokens"] == 16_384
    changed = await _api(fleet, "PATCH", "/llms/bound", {"maxOutputTokens": None, "extra": {"note": "x"}})
    assert (changed["maxOutputTokens"], changed["extra"]) == (None, {"note": "x"})


async def test_a_default_of_the_agent_passes_without_a_notice_in_every_turn(
    fleet: Fleet, behind: Provider
) -> None:
    # UN-6
    await _made(fleet, behind, "defaults", {"defaultParams": {"max_tokens": 50_000}})
    said = await _api(fleet, "POST", "/agents/defaults/chat", {"message": "hi"})
    assert behind.asked[-1].body["max_tokens"] == 50_000
    assert "notices" not in said
    again = {"message": "hi", "threadId": said["threadId"]}
    assert "notices" not in await _api(fleet, "POST", "/agents/defaults/chat", again)
    said = await _api(fleet, "POST", "/agents/defaults/chat", {**again, "max_tokens": 40_000})
    assert said["notices"][0].startswith("max_tokens 40000 went to the provider as it is")


async def test_an_agent_is_made_with_the_ids_of_its_llm_and_its_project(
    fleet: Fleet, behind: Provider
) -> None:
    # UN-6
    base = {"type": "generic", "model": "nobody-declared", "url": f"{behind.base}/v1", "probe": False}
    llm = await _api(fleet, "POST", "/llms", {"name": "by-id", **base})
    project = await _api(fleet, "POST", "/projects", {"name": "ids", "servers": ["echo"]})
    ids = {"llmId": llm["id"], "projectId": project["id"]}
    made = await _api(fleet, "POST", "/agents", {"name": "by-ids", **ids})
    assert (made["llm"]["name"], made["project"]["name"]) == ("by-id", "ids")
    listed = await _api(fleet, "GET", "/projects/ids/agents")
    assert [each["name"] for each in listed["items"]] == ["by-ids"]
    assert (await _api(fleet, "PATCH", "/agents/by-ids", {"project_id": None}))["project"] is None
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1/agents"
        twice = await http.post(url, json={"name": "twice", "llm": "by-id", "llmId": llm["id"]})
    assert (twice.status_code, twice.json()["data"]["key"]) == (400, "llmId")
    assert "is given twice, as llm too; leave one out" in twice.json()["error"]


async def test_made_agents_have_limits_of_their_loop(fleet: Fleet, behind: Provider) -> None:
    # PR-24
    await _made(fleet, behind, "steps", {"project": "test", "maxIterations": 2, "loopRepeatThreshold": 0})
    await _made(fleet, behind, "repeats", {"project": "test", "loopRepeatThreshold": 2})
    said = {}
    for name in ("steps", "repeats"):
        behind.asked.clear()
        said[name] = json.dumps(await _api(fleet, "POST", f"/agents/{name}/chat", {"message": "go"}))
        assert len(behind.asked) == 2
    assert "took 2 steps without coming to an end" in said["steps"]
    assert "raise its maxIterations" in said["steps"] and "agents.yaml" not in said["steps"]
    assert "echo/echo was called 2 times" in said["repeats"]
    assert "loopRepeatThreshold sets how often" in said["repeats"] and "agents.yaml" not in said["repeats"]
    for wrong in ({"maxIterations": 0}, {"loopRepeatThreshold": 1}, {"maxIterations": True}):
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            url = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1/agents/steps"
            response = await http.patch(url, json=wrong)
        assert (response.status_code, response.json()["data"]["key"]) == (400, next(iter(wrong)))


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("vllm", "use generic, for any server that speaks OpenAI's chat completions"),
        ("Ollama", "use generic, for any server that speaks OpenAI's chat completions"),
        ("claude", "did you mean anthropic?"),
        ("opnai", "did you mean openai?"),
        ("zzz", "generic is any server that speaks chat completions"),
    ],
)
async def test_a_type_of_llm_that_is_not_there_names_the_one_that_is_meant(
    fleet: Fleet, word: str, hint: str
) -> None:
    body = {"name": "typed-wrong", "type": word, "model": "m", "url": "http://127.0.0.1:1/v1"}
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{fleet.project.registry_port}/api/v1/llms"
        response = await http.post(url, json=body)
    said = response.json()
    assert (response.status_code, said["data"]["key"]) == (400, "type")
    assert f"there is no type '{word}'; {hint}; known: openai, anthropic, generic, " in said["error"]


async def test_another_api_version_hides_no_other_mistake_of_the_document(
    fleet: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(
        "apiVersion: pallas/v9\nkind: llm\nmetadata: {name: wrong}\nsize: 3\nspec:\n"
        "  type: vllm\n  modle: m\n  maxOutputTokens: 0\n"
        "---\napiVersion: pallas/v1\nkind: project\nmetadata: {name: right}\nspec: {}\n"
    )
    origin = f"http://127.0.0.1:{fleet.project.registry_port}"

    def called() -> int:
        return apply([str(path)], False, FleetLocation(tmp_path, origin, ""))

    assert await asyncio.to_thread(called) == 1
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    for line, text in (
        (1, "apiVersion: is not a known version"),
        (4, "size: there is no such key"),
        (6, "spec.type: there is no type 'vllm'; use generic"),
        (7, "spec.modle: there is no such key; did you mean model; known: "),
        (8, "spec.maxOutputTokens: "),
    ):
        assert any(each.startswith(f"{path}:{line}: {text}") for each in lines), err
    assert lines[-1] == "nothing was changed"


async def test_the_command_line_makes_shows_and_applies_them(
    fleet: Fleet, behind: Provider, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # AG-9
    origin = f"http://127.0.0.1:{fleet.project.registry_port}"

    async def run(*words: str) -> str:
        def called() -> None:
            with pytest.raises(SystemExit) as ended:
                app([*words], standalone_mode=True)
            assert ended.value.code == 0, capsys.readouterr()

        await asyncio.to_thread(called)
        return capsys.readouterr().out

    address = ("--type", "generic", "--model", "nobody-declared", "--url", f"{behind.base}/v1")
    where = ("--fleet-url", origin)
    await run("create", "llm", "typed", *address, "--no-probe", "--max-output-tokens", "700", *where)
    limits = ("--max-iterations", "4", "--loop-repeat-threshold", "0")
    await run("create", "agent", "typed", "--llm", "typed", *limits, "--url", origin)
    for kind, expected in (
        ("llm", {"maxOutputTokens": 700}),
        ("agent", {"maxIterations": 4, "loopRepeatThreshold": 0}),
    ):
        document = await run("get", kind, "typed", "-o", "yaml", "--url", origin)
        spec = yaml.safe_load(document)["spec"]
        assert {key: spec[key] for key in expected} == expected
        (tmp_path / "typed.yaml").write_text(document)
        assert "unchanged" in await run("apply", "-f", str(tmp_path / "typed.yaml"), "--url", origin)
