"""Agents, LLMs, secrets and projects over REST: made, listed, changed and deleted."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.rest import Api, Wire, api

from pallas.ledger import open_ledger

LLM = {"name": "qwen3", "type": "generic", "model": "qwen3-thinking", "url": "http://127.0.0.1:9/v1"}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path) as started:
        yield started


async def test_an_agent_is_made_looked_at_changed_and_deleted(served: Api) -> None:
    # AG-1
    written = {
        "name": "reviewer.v1",
        "description": "I review.",
        "systemPrompt": "You review.",
        "llm": "qwen3",
        "project": {"name": "ops"},
        "proxyModelName": "m",
        "defaultParams": {"temperature": 0.2, "maxTokens": 4096},
        "extras": {"lora": 1},
    }
    async with served.client() as http:
        llm = (await http.post("/llms", json=LLM)).json()
        project = (await http.post("/projects", json={"name": "ops"})).json()
        made = await http.post("/agents", json=written)
        assert made.status_code == 201, made.text
        assert made.headers["location"] == "/api/v1/agents/reviewer.v1"
        agent = made.json()
        assert agent["llm"] == {"id": llm["id"], "name": "qwen3"}
        assert agent["project"] == {"id": project["id"], "name": "ops"}
        assert agent["defaultParams"] == {"temperature": 0.2, "max_tokens": 4096}
        same = ("name", "description", "systemPrompt", "proxyModelName", "extras")
        assert {key: agent[key] for key in same} == {key: written[key] for key in same}
        assert (agent["version"], agent["source"], agent["ownerId"]) == (1, "api", "anonymous")
        assert agent["createdAt"].endswith("Z") and agent["updatedAt"] == agent["createdAt"]

        for which in ("reviewer.v1", agent["id"], "reviewer%2ev1"):
            found = await http.get(f"/agents/{which}")
            assert (found.status_code, found.json()) == (200, agent)
        assert agent in (await http.get("/agents")).json()["items"]
        assert (await http.get("/projects/ops/agents")).json()["items"] == [agent]

        taken = await http.post("/agents", json=written)
        assert taken.status_code == 409 and taken.json()["data"]["reason"] == "conflict"
        declared = await http.post("/agents", json={"name": "echo"})
        assert declared.status_code == 409 and "agents.yaml" in declared.json()["error"]

        # PUT and PATCH are the same: what is absent stays, null clears (C17).
        for method in ("PUT", "PATCH"):
            changed = await http.request(method, "/agents/reviewer.v1", json={"description": method})
            assert changed.status_code == 200, changed.text
            assert changed.json()["systemPrompt"] == "You review."
            assert changed.json()["description"] == method
        assert changed.json()["version"] == 3
        cleared = (await http.put(f"/agents/{agent['id']}", json={"llm": None, "defaultParams": None})).json()
        assert (cleared["llm"], cleared["defaultParams"], cleared["version"]) == (None, None, 4)
        # What was read may be sent back as it is.
        again = await http.put("/agents/reviewer.v1", json=cleared)
        assert (again.status_code, again.json()) == (200, cleared)
        renamed = await http.put("/agents/reviewer.v1", json={"name": "another"})
        assert (renamed.status_code, renamed.json()["data"]["key"]) == (400, "name")

        gone = await http.delete("/agents/reviewer.v1")
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await http.get("/agents/reviewer.v1")).status_code == 404
        assert (await http.delete("/agents/reviewer.v1")).status_code == 404


async def test_agents_of_files_are_listed_with_their_place(served: Api) -> None:
    # AG-1
    async with served.client() as http:
        listed = (await http.get("/agents")).json()
        assert [each["name"] for each in listed["items"]] == ["echo", "other"]
        assert listed["next"] is None
        one = (await http.get("/agents/echo")).json()
    assert one["source"].startswith("agents.yaml:")
    assert (one["state"], one["health"]) == ("ready", "ok")
    assert one["url"] and one["systemPrompt"] == "Be."
    assert (one["kind"], one["availability"], one["capabilities"]) == ("llm", "ready", [])


@pytest.mark.parametrize(
    ("path", "body", "status", "key"),
    [
        ("/agents", {}, 400, "name"),
        ("/agents", {"name": "Bad Name"}, 400, "name"),
        ("/agents", {"name": "agent-x"}, 400, "name"),
        ("/agents", {"name": "x", "nonsense": 1}, 400, "nonsense"),
        ("/agents", {"name": "x", "description": 5}, 400, "description"),
        ("/agents", {"name": "x", "defaultParams": {"temperature": 9}}, 400, "defaultParams.temperature"),
        ("/agents", {"name": "x", "llm": "nowhere"}, 422, "llm"),
        ("/llms", {"name": "x", "type": "generic"}, 400, "model"),
        ("/llms", {"name": "x", "type": "generic", "model": "m", "url": "no url"}, 400, "url"),
        ("/secrets", {"name": "x"}, 400, "data"),
        ("/projects", {"name": "x", "servers": ["nowhere"]}, 422, "servers.0"),
    ],
)
async def test_a_mistake_is_named_by_its_key(
    served: Api, path: str, body: dict[str, Any], status: int, key: str
) -> None:
    async with served.client() as http:
        answer = await http.post(path, json=body)
        assert answer.status_code == status, answer.text
        assert answer.json()["data"]["key"] == key
        assert (await http.get(f"{path}/x")).status_code == 404


async def test_values_of_secrets_go_in_and_never_come_out(
    served: Api, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-36
    planted = "planted-value-of-the-secret"
    caplog.set_level(logging.DEBUG)
    async with served.client() as http:
        answers = [
            await http.post("/secrets", json={"name": "keys", "data": {"API_KEY": planted}}),
            await http.post("/secrets", json={"name": "keys", "data": {"API_KEY": planted}}),
            await http.put("/secrets/keys", json={"data": {"OTHER": planted}}),
            await http.put("/secrets/keys", json={"data": {"bad key": planted}}),
            await http.put("/secrets/keys", json={"data": planted}),
            await http.post("/agents", json={"name": "x", planted: 1}),
            await http.get("/secrets"),
            await http.get("/secrets/keys"),
            await http.get(f"/agents/{planted}"),
        ]
        assert [each.status_code for each in answers] == [201, 409, 200, 400, 400, 400, 200, 200, 404]
        assert answers[-2].json()["keys"] == ["API_KEY", "OTHER"]
        # What a caller wrote as a name is told to that caller; what it wrote as a value to nobody.
        assert not any(planted in each.text for each in answers[:5] + answers[6:8])
    assert planted not in caplog.text.replace(f"/agents/{planted}", "")


async def test_what_others_use_stays(served: Api) -> None:
    # AG-2: over REST
    async with served.client() as http:
        await http.post("/secrets", json={"name": "keys", "data": {"K": "some-value-of-it"}})
        ref = {"apiKeyRef": "keys/K", "probe": False}
        assert (await http.post("/llms", json={**LLM, **ref})).json()["apiKeyRef"] == {
            "name": "keys",
            "key": "K",
        }
        await http.post("/agents", json={"name": "x", "llm": "qwen3"})
        for path, user in (("/llms/qwen3", "x"), ("/secrets/keys", "qwen3")):
            kept = await http.delete(path)
            assert (kept.status_code, kept.json()["data"]["reason"]) == (409, "in_use")
            assert user in kept.json()["error"]
        for path in ("/agents/x", "/llms/qwen3", "/secrets/keys"):
            assert (await http.delete(path)).status_code == 204


async def test_lists_come_in_parts(served: Api) -> None:
    names = [f"s{number:02}" for number in range(5)]
    async with served.client() as http:
        for name in reversed(names):
            await http.post("/secrets", json={"name": name, "data": {"K": "value-of-the-key"}})
        found, cursor = [], ""
        while True:
            page = (await http.get("/secrets", params={"limit": 2, "cursor": cursor})).json()
            found += [each["name"] for each in page["items"]]
            if (cursor := page["next"]) is None:
                break
        assert found == names
        for query, key in (("limit=0", "limit"), ("limit=201", "limit"), ("limit=x", "limit")):
            answer = await http.get(f"/secrets?{query}")
            assert (answer.status_code, answer.json()["data"]["key"]) == (400, key)
        for cursor in ("nonsense", "%00", "x" * 501):
            assert (await http.get(f"/secrets?cursor={cursor}")).status_code == 400


@pytest.mark.slow
async def test_methods_and_paths_that_are_none(served: Api) -> None:
    async with served.client() as http:
        for path, allowed in (
            ("/agents", "GET, HEAD, OPTIONS, POST"),
            ("/agents/x", "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"),
            ("/agents/x/chat", "OPTIONS, POST"),
            ("/openapi.json", "GET, HEAD, OPTIONS"),
        ):
            answer = await http.request("TRACE", path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
            assert answer.json()["data"]["type"] == "PROTOCOL"
            options = await http.options(path)
            assert (options.status_code, options.headers["allow"], options.content) == (204, allowed, b"")
        for path in ("/nothing", "/agents/", "/agents/a%2Fb", "/", "/agents/x/y/z", "//agents"):
            missing = await http.get(path)
            assert (missing.status_code, missing.json()["data"]["reason"]) == (404, "not_found"), path
            assert (await http.options(path)).status_code == 404
        for path in ("/agents", "/agents/echo", "/whoami", "/openapi.json"):
            whole, head = await http.get(path), await http.head(path)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == whole.headers["content-length"]
        for path in ("/agents/x%00y", "/agents/%ff", f"/agents/{'x' * 201}", "/agents/..%5c"):
            assert (await http.get(path)).status_code in (400, 404), path


async def test_every_answer_is_kept_by_nobody_and_is_what_it_says(served: Api) -> None:
    async with served.client() as http:
        for path in ("/agents", "/whoami", "/agents/nobody", "/nothing"):
            answer = await http.get(path)
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["content-type"] == "application/json"


async def test_changes_are_written_down_and_looks_are_not(
    served: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with served.client(bearer="a-token-of-somebody") as http:
        await http.get("/agents")
        await http.post("/secrets", json={"name": "s", "data": {"K": "value-of-the-key"}})
        await http.post("/secrets", json={"name": "s"})
        await http.delete("/secrets/s?version=1")
    told = [record for record in caplog.records if record.name == "pallas.audit"]
    assert [(each.audit, each.verb, each.path, each.status) for each in told] == [  # type: ignore[attr-defined]
        ("changed", "create", "/api/v1/secrets", 201),
        ("failed", "create", "/api/v1/secrets", 409),
        ("changed", "delete", "/api/v1/secrets/s", 204),
    ]
    assert len({each.principal for each in told}) == 1  # type: ignore[attr-defined]
    assert "a-token-of-somebody" not in caplog.text and "value-of-the-key" not in caplog.text


async def test_what_breaks_inside_is_told_without_its_story(
    served: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(served.catalog, "list", broken)
    async with served.client() as http:
        answer = await http.get("/agents")
    assert answer.status_code == 500
    assert answer.json()["data"] == {"type": "INTERNAL", "retryable": False}
    assert "secret inside" not in answer.text and "secret inside" in caplog.text


@pytest.mark.slow
async def test_a_ledger_that_is_away_is_a_matter_of_time(tmp_path: Path) -> None:
    ledger = await open_ledger("memory")
    async with api(tmp_path, ledger=ledger) as served, served.client() as http:
        await ledger.close()
        answer = await http.get("/threads")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["data"]["type"] == "TRANSPORT"


async def test_no_other_host_and_no_other_origin_gets_in(served: Api) -> None:
    async with Wire(served.port) as wire:
        assert await wire.ask("GET", "/agents", host="evil.example") == 421
    async with Wire(served.port) as wire:
        assert await wire.ask("GET", "/agents", origin="https://evil.example") == 403
