"""Threads, messages and runs over REST: listed, read, renamed, deleted, and whose they are."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.executors import echo
from support.rest import Api, api

from pallas.executors import Emit, ExecutorTurn, TurnResult
from pallas.model import Fault, FaultType, Principal
from pallas.model.grant_rules import CONTROL_FULL

PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
    if turn.text == "fail":
        raise Fault(FaultType.UPSTREAM, "the model broke off")
    return await echo(turn, emit)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Api]:
    async with api(tmp_path, answer) as started:
        yield started


async def test_a_thread_is_begun_named_read_and_deleted(served: Api) -> None:
    async with served.client() as http:
        made = await http.post("/agents/echo/threads", json={"title": "Plans"})
        assert made.status_code == 201
        thread = made.json()
        assert made.headers["location"] == f"/api/v1/threads/{thread['id']}"
        assert {**thread, "id": "", "createdAt": "", "updatedAt": ""} == {
            "id": "",
            "agent": "echo",
            "ownerId": "anonymous",
            "title": "Plans",
            "origin": "rest",
            "messages": 0,
            "createdAt": "",
            "updatedAt": "",
            "lastTurnAt": None,
            "cost": None,
            "unpriced": 0,
            "snippet": None,
            "branchedFrom": None,
            "branchedAt": None,
        }
        assert (await http.post("/agents/echo/threads")).json()["title"] == ""
        assert (await http.post("/agents/echo/threads", json={"name": 1})).json()["data"]["key"] == "name"
        assert (await http.post("/agents/nobody/threads")).status_code == 404
        assert (await http.get("/agents/nobody/threads")).status_code == 404

        path = f"/threads/{thread['id']}"
        images = [{"data": PICTURE, "mimeType": "image/png"}]
        body = {"message": "one", "threadId": thread["id"], "images": images}
        assert (await http.post("/agents/echo/chat", json=body)).status_code == 200
        renamed = await http.patch(path, json={"title": "Better\nplans"})
        assert renamed.json()["title"] == "Better"
        assert (await http.patch(path, json={})).json()["data"]["key"] == "title"
        found = (await http.get(path)).json()
        assert (found["messages"], found["title"]) == (2, "Better")
        assert found["lastTurnAt"].endswith("Z")

        rows = (await http.get(f"{path}/messages")).json()
        assert rows["next"] is None
        question, said = rows["items"]
        assert question["images"] == images and question["content"] == "one"
        assert (said["role"], said["content"], said["status"]) == ("assistant", "0:one", "complete")
        assert (said["threadId"], said["toolCalls"], said["toolCallId"]) == (thread["id"], None, None)
        run = (await http.get(f"/runs/{said['runId']}")).json()
        assert (run["threadId"], run["turnIndex"], run["surface"]) == (
            thread["id"],
            said["turnIndex"],
            "rest",
        )

        assert (await http.delete(path)).status_code == 204
        for gone in (path, f"{path}/messages", f"/runs/{said['runId']}", f"/runs/{said['runId']}/events"):
            assert (await http.get(gone)).status_code == 404, gone
        assert (await http.delete(path)).status_code == 404


async def test_messages_come_in_either_order_and_in_parts(served: Api) -> None:
    async with served.client() as http:
        thread = (await http.post("/agents/echo/threads")).json()["id"]
        for number in range(3):
            body = {"message": str(number), "threadId": thread}
            assert (await http.post("/agents/echo/chat", json=body)).status_code == 200
        path = f"/threads/{thread}/messages"
        for order, expected in (("asc", list(range(6))), ("desc", list(range(5, -1, -1)))):
            found: list[int] = []
            cursor: str | None = ""
            while cursor is not None:
                query: dict[str, Any] = {"order": order, "limit": 4, "cursor": cursor}
                page = (await http.get(path, params=query)).json()
                found += [each["turnIndex"] for each in page["items"]]
                cursor = page["next"]
            assert found == expected
        assert (await http.get(path, params={"order": "up"})).json()["data"]["key"] == "order"


async def test_a_turn_that_failed_stays_visible_with_its_reason(served: Api) -> None:
    async with served.client() as http:
        thread = (await http.post("/agents/echo/threads")).json()["id"]
        failed = await http.post("/agents/echo/chat", json={"message": "fail", "threadId": thread})
        assert failed.status_code == 502
        (row,) = (await http.get(f"/threads/{thread}/messages")).json()["items"]
        assert row["status"] == "error" and "broke off" in row["reason"]
        run = (await http.get(f"/runs/{failed.headers['pallas-run-id']}")).json()
        assert (run["status"], run["turnIndex"]) == ("error", None) and "broke off" in run["fault"]


async def test_runs_are_listed_by_what_one_looks_for(served: Api) -> None:
    async with served.client() as http:
        first = (await http.post("/agents/echo/chat", json={"message": "one"})).json()
        await http.post("/agents/other/chat", json={"message": "two"})
        await http.post("/agents/echo/chat", json={"message": "fail"})
        for query, count in (
            ("", 3),
            ("agent=echo", 2),
            ("agent=other", 1),
            ("status=error", 1),
            ("status=ok&agent=echo", 1),
            (f"thread={first['threadId']}", 1),
            ("agent=nobody", 0),
        ):
            found = (await http.get(f"/runs?{query}")).json()["items"]
            assert len(found) == count, query
        assert (await http.get("/runs?status=done")).json()["data"]["key"] == "status"
        threads = (await http.get("/agents/echo/threads")).json()["items"]
        assert len(threads) == 2 and {each["agent"] for each in threads} == {"echo"}
        assert len((await http.get("/threads?agent=other")).json()["items"]) == 1


async def test_threads_are_found_by_what_was_said(served: Api) -> None:
    async with served.client() as http:
        for agent, message in (("echo", "how are lamps priced?"), ("other", "lamps again"), ("echo", "hay")):
            said = (await http.post(f"/agents/{agent}/chat", json={"message": message})).json()
            assert said["text"], said
        found = (await http.get("/threads", params={"search": "LAMP"})).json()
        assert [each["agent"] for each in found["items"]] == ["other", "echo"]
        assert ["lamps" in each["snippet"] for each in found["items"]] == [True, True]
        first = (await http.get("/threads", params={"search": "lamps", "limit": "1"})).json()
        rest = {"search": "lamps", "limit": "1", "cursor": first["next"]}
        both = [*first["items"], *(await http.get("/threads", params=rest)).json()["items"]]
        assert both == found["items"]
        of_agent = (await http.get("/agents/echo/threads", params={"search": "lamps"})).json()["items"]
        assert [each["id"] for each in of_agent] == [found["items"][1]["id"]]

        for search in ('"', "*", "NEAR(", "-x", "lamps AND", "' OR 1=1 --"):
            assert (await http.get("/threads", params={"search": search})).json()["items"] == [], search
        assert len((await http.get("/threads", params={"search": " "})).json()["items"]) == 3
        for wrong in ({"search": "x" * 10_000}, {"search": "a\0b"}, {"search": "a", "handle": "b"}):
            refused = await http.get("/threads", params=wrong)
            assert refused.status_code in (400, 422), refused.text
            assert len(refused.text) < 1_000


async def test_what_belongs_to_another_is_not_there(tmp_path: Path) -> None:
    # AG-21: REST side
    async def known(scope: Any) -> Principal:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().partition(" ")[2]
        return Principal(CONTROL_FULL if token == "admin" else f"token:{token}")

    async with api(tmp_path, answer, authenticate=known) as served:
        async with served.client("mine") as http:
            said = (await http.post("/agents/echo/chat", json={"message": "private"})).json()
            assert len((await http.get("/threads")).json()["items"]) == 1
        thread, run = f"/threads/{said['threadId']}", f"/runs/{said['runId']}"
        async with served.client("other") as http:
            for method, path, body in (
                ("GET", thread, None),
                ("GET", f"{thread}/messages", None),
                ("PATCH", thread, {"title": "mine now"}),
                ("DELETE", thread, None),
                ("POST", "/agents/echo/chat", {"message": "x", "threadId": said["threadId"]}),
            ):
                refused = await http.request(method, path, json=body)
                assert refused.status_code == 404, (method, path)
                # Who knows an id of 144 random bits may read that it is another caller's, and no more.
                said = refused.json()
                assert "opened with another identity" in said.pop("error"), (method, path)
                assert "private" not in refused.text
            for method, path in (("GET", run), ("DELETE", run), ("GET", f"{run}/events")):
                assert (await http.request(method, path)).status_code == 404
            for path in ("/threads", "/runs", "/agents/echo/threads"):
                assert (await http.get(path)).json()["items"] == []
            assert (await http.get("/threads?search=private")).json()["items"] == []
        async with served.client("admin") as http:
            assert len((await http.get("/threads?search=private")).json()["items"]) == 1
            assert (await http.get(f"{thread}/messages")).json()["items"][0]["content"] == "private"
            assert len((await http.get("/threads")).json()["items"]) == 1
            assert (await http.get(run)).json()["ownerId"] == "token:mine"


async def test_who_asks_is_told_who_that_is(served: Api) -> None:
    async with served.client() as http:
        told = (await http.get("/whoami")).json()
    assert told["principal"] == "anonymous" and told["enforced"] is False
    assert told["grants"] and all(isinstance(each, str) for each in told["grants"])
    async with served.client("a-token-of-somebody") as http:
        told = (await http.get("/whoami")).json()
    assert told["principal"].startswith("bearer:") and "a-token" not in str(told)
