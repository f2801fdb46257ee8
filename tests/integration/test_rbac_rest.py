"""The REST API with rules of grants: which verb each endpoint needs, and what is whose."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.granted import TOKENS, allow, api, granted

from pallas.fleet.fleet import Fleet
from pallas.model.grant_rules import VERBS_OF
from pallas.surfaces.control.control_tokens import ControlTokens
from pallas.surfaces.rest.endpoints import ENDPOINTS, RestEndpoint
from pallas.surfaces.token_attempts import BURST, Attempts

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALL = {f"{verb}:{resource}" for resource, verbs in VERBS_OF.items() for verb in verbs}
REFUSED = (401, 403)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    narrow = {"narrow": {"auth": {"tokens": ["bob"]}}}
    agents = ("desk", "other", "narrow")
    async with granted(tmp_path_factory.mktemp("rest"), {}, agents, keys=narrow) as found:
        yield found


async def asked(client: httpx2.AsyncClient, endpoint: RestEndpoint, name: str = "desk") -> httpx2.Response:
    """One request of that endpoint, about an agent or thing of that name."""
    path = endpoint.path.format(name=name, id="nothing")
    body = {"message": "hello"} if path.endswith("/chat") else {}
    sent = {"json": body} if endpoint.method in ("POST", "PUT", "PATCH") else {}
    return await client.request(endpoint.method, path, **sent)


def fault_in(answer: httpx2.Response) -> dict[str, Any]:
    data: dict[str, Any] = answer.json()["data"]
    return data


@pytest.mark.parametrize(
    "endpoint", [each for each in ENDPOINTS if each.verb is not None], ids=lambda each: f"{each[0]} {each[1]}"
)
async def test_an_endpoint_lets_through_who_has_its_verb_and_no_other(
    fleet: Fleet, endpoint: RestEndpoint
) -> None:
    # AG-20
    needed = f"{endpoint.verb}:{endpoint.resource}"
    async with api(fleet, None) as nobody, api(fleet, "ci") as ci:
        allow(fleet, {"token:ada": ["*"]})
        answer = await asked(nobody, endpoint)
        assert (answer.status_code, fault_in(answer)["reason"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        for others in ([], sorted(ALL - {needed})):
            allow(fleet, {"token:ada": ["*"], "token:ci": others})
            answer = await asked(ci, endpoint)
            assert (answer.status_code, fault_in(answer)["reason"]) == (403, "forbidden"), others
            assert fault_in(answer)["grant"].startswith(needed)
        for enough in (needed, f"{endpoint.verb}:*", f"*:{endpoint.resource}", "*"):
            allow(fleet, {"token:ci": [enough]})
            # Nothing of that name is there, but for what runs: nothing is changed.
            name = "desk" if endpoint.verb == "run" else "nothing"
            assert (await asked(ci, endpoint, name)).status_code not in REFUSED, enough


async def test_who_may_run_one_agent_may_run_no_other(fleet: Fleet) -> None:
    # AG-20
    for one in ("run:agents:desk", "run:agents:*"):
        allow(fleet, {"token:ci": [one, "view:projects", "edit:projects:test"]})
        async with api(fleet, "ci") as ci:
            for name, may in (("desk", True), ("other", one.endswith("*"))):
                for endpoint in (each for each in ENDPOINTS if each.verb == "run"):
                    answer = await asked(ci, endpoint, name)
                    assert (answer.status_code not in REFUSED) is may, (endpoint, name)
            assert (await ci.get("/agents/desk")).status_code == 403


async def test_an_agents_own_auth_holds_at_the_api_with_rules_and_without(fleet: Fleet) -> None:
    message = {"json": {"message": "hi"}}
    async with api(fleet, "ada") as ada, api(fleet, "bob") as bob:
        for rbac in (fleet.project.rbac, None):
            fleet.grants.adopt(replace(fleet.project, rbac=rbac))
            if rbac is not None:
                allow(fleet, {"authenticated": ["*"]})
            refused = await ada.post("/agents/narrow/chat", **message)
            assert (refused.status_code, fault_in(refused)["reason"]) == (403, "forbidden")
            assert "auth: of that agent does not accept this caller" in refused.text
            assert (await ada.post("/agents/other/chat", **message)).status_code == 200
            assert (await bob.post("/agents/narrow/chat", **message)).status_code == 200


async def test_what_belongs_to_a_project_is_not_had_by_having_the_project(fleet: Fleet) -> None:
    # AG-20
    allow(fleet, {"token:ci": ["*:projects"]})
    async with api(fleet, "ci") as ci:
        project = fleet.project.name
        assert (await ci.get(f"/projects/{project}/agents")).status_code == 200
        for path in ("/agents", "/agents/desk", "/agents/desk/threads", "/llms", "/secrets"):
            assert (await ci.get(path)).status_code == 403, path
        assert (await ci.post("/agents/desk/chat", json={"message": "hi"})).status_code == 403


async def test_what_endpoints_show_of_ones_own_needs_somebody_and_no_grant(fleet: Fleet) -> None:
    allow(fleet, {"anonymous": ["*"]})
    async with api(fleet, None) as nobody, api(fleet, "ci") as ci:
        for path in ("/threads", "/runs", "/agents/desk/threads"):
            # What nobody knows is one principal: its threads are told to none of them.
            assert (await nobody.get(path)).status_code == 401, path
        allow(fleet, {})
        for path in ("/threads", "/runs"):
            items = (await ci.get(path)).json()["items"]
            assert {each["ownerId"] for each in items} <= {"token:ci"}
        assert (await nobody.get("/whoami")).json() == {
            "principal": "anonymous",
            "enforced": True,
            "grants": [],
        }


async def test_a_thread_is_its_owners_and_of_those_who_may_see_all(fleet: Fleet) -> None:
    # AG-21
    run = ["run:agents"]
    allow(fleet, {"token:ada": run, "token:bob": [*run, "view:*", "edit:*", "delete:*"]})
    async with api(fleet, "ada") as ada, api(fleet, "bob") as bob:
        said = (await ada.post("/agents/desk/chat", json={"message": "my secret"})).json()
        thread = f"/threads/{said['threadId']}"
        assert (await ada.get(f"{thread}/messages")).json()["items"][0]["content"] == "my secret"
        refused = [
            await bob.get(f"{thread}/messages"),
            await bob.get(thread),
            await bob.patch(thread, json={"title": "mine"}),
            await bob.delete(thread),
            await bob.post("/agents/desk/chat", json={"message": "go on", "threadId": said["threadId"]}),
            await bob.get(f"/runs/{said['runId']}"),
            await bob.get(f"/runs/{said['runId']}/events"),
            await bob.delete(f"/runs/{said['runId']}"),
        ]
        assert [each.status_code for each in refused] == [404] * len(refused)
        # Who knows an id of 144 random bits reads that it is another caller's, and no more.
        assert "opened with another identity" in refused[1].json()["error"]
        assert "my secret" not in "".join(each.text for each in refused)
        for path in ("/threads", "/agents/desk/threads", "/runs"):
            owners = {each["ownerId"] for each in (await bob.get(path)).json()["items"]}
            assert owners <= {"token:bob"}, path
        for half in ("view:agents", "admin:threads"):
            allow(fleet, {"token:bob": [half]})
            assert (await bob.get(f"{thread}/messages")).status_code == 404, half
        allow(fleet, {"token:bob": ["view:agents", "admin:threads"]})
        assert (await bob.get(f"{thread}/messages")).json()["items"][0]["content"] == "my secret"
        assert said["threadId"] in [each["id"] for each in (await bob.get("/threads")).json()["items"]]


async def test_changes_and_refusals_are_written_down_once_without_tokens(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    allow(fleet, {"token:ada": ["create:secrets", "delete:secrets"]})
    async with api(fleet, "ada") as ada:
        await ada.post("/secrets", json={"name": "audited", "data": {"KEY": "planted-value"}})
        await ada.get("/secrets")
        await ada.delete("/secrets/audited")
    audited = [each for each in caplog.records if each.name == "pallas.audit"]
    said = [
        tuple(vars(each)[key] for key in ("audit", "principal", "verb", "resource", "target"))
        for each in audited
    ]
    assert said == [
        ("changed", "token:ada", "create", "secrets", "audited"),
        ("denied", "token:ada", "view", "secrets", ""),
        ("changed", "token:ada", "delete", "secrets", "audited"),
    ]
    whole = json.dumps([str(vars(each)) for each in caplog.records])
    assert "planted-value" not in whole and TOKENS["ada"] not in whole


async def test_the_tokens_of_the_control_api_hold_here_and_go_no_further(
    fleet: Fleet, monkeypatch: Any
) -> None:
    class Control:
        tokens = ControlTokens(full="control-token-of-this-test", read="reading-token-of-this-test")

    monkeypatch.setattr(fleet.surfaces, "control_api", Control())
    asked_with: list[str | None] = []
    run = fleet.kernel.run

    async def heard(request: Any, listener: Any = None, **more: Any) -> Any:
        asked_with.append(request.bearer)
        return await run(request, listener, **more)

    monkeypatch.setattr(fleet.kernel, "run", heard)
    allow(fleet, {})
    async with api(fleet, Control.tokens.full) as full, api(fleet, Control.tokens.read) as read:
        assert (await full.get("/whoami")).json()["grants"] == ["*"]
        assert (await read.get("/whoami")).json()["grants"] == ["view:*"]
        assert (await full.post("/agents/desk/chat", json={"message": "hi"})).status_code == 200
        assert (await read.get("/agents")).status_code == 200
        assert (await read.post("/agents/desk/chat", json={"message": "hi"})).status_code == 403
    # No downstream is shown it.
    assert asked_with == [None]


async def test_a_wrong_token_is_refused_and_guessing_is_slowed_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A fleet of its own: callers from this address have to wait afterwards.
    async with (
        granted(tmp_path, {"anonymous": ["view:*"], "token:ada": ["view:*"]}, ("desk",)) as fleet,
        api(fleet, "wrong") as guess,
        api(fleet, None) as nobody,
        api(fleet, "ada") as ada,
    ):
        monkeypatch.setattr(fleet.inbound, "_attempts", Attempts(lambda: 0.0))  # its clock stands still
        assert (await nobody.get("/agents")).status_code == 200
        assert (await ada.get("/agents")).status_code == 200
        first = await guess.get("/agents")
        assert (first.status_code, "wrong" in first.text) == (401, False)
        later = await asyncio.gather(*(guess.get("/agents") for _ in range(20)))
        assert Counter(each.status_code for each in later) == {401: BURST - 1, 429: 21 - BURST}
        assert all(each.headers["retry-after"] for each in later if each.status_code == 429)
        # Who was let in from that address before goes on; who guesses right at last has to wait as well.
        assert (await ada.get("/agents")).status_code == 200
        async with api(fleet, "eve") as eve:
            assert (await eve.get("/agents")).status_code == 429


async def test_a_fork_with_another_version_needs_what_changes_an_agent(fleet: Fleet) -> None:
    # AG-20
    allow(fleet, {"token:ada": ["run:agents:desk", "view:agents:desk"]})
    async with api(fleet, "ada") as ada:
        answer = await ada.post("/agents/desk/chat", json={"message": "hello"})
        place = f"/runs/{answer.json()['runId']}/fork"
        assert (await ada.post(place, json={"step": 1})).status_code == 200
        answer = await ada.post(place, json={"step": 1, "version": "HEAD"})
        assert (answer.status_code, fault_in(answer)["reason"]) == (403, "forbidden")
        allow(fleet, {"token:ada": ["run:agents:desk", "view:agents:desk", "edit:agents:desk"]})
        answer = await ada.post(place, json={"step": 1, "version": "HEAD"})
        # It is let through; the project is in no repository.
        assert answer.status_code == 400
        assert answer.json()["error"].startswith("version: HEAD is no revision of the project")
