"""REST at its edges: the first request, a key before its run, runs that the ledger does not know yet."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from support.executors import FakeExecutor, Gate
from support.rest import Api, api, chunks_in, text_in
from support.waiting import until

from pallas.executors import Emit, ExecutorInfo, ExecutorTurn, TurnResult
from pallas.model import Fault, FaultType
from pallas.surfaces.rest.rest_app import RestApi
from pallas.surfaces.rest.run_answers import digest_of

CHAT = "/agents/echo/chat"


def forgetful(served: Api) -> None:
    """Agents that remember nothing: their runs have no thread."""
    served.executor.info = ExecutorInfo(model="fake", vision=True, keeps_history=False)


@pytest.mark.slow
async def test_a_key_is_kept_before_its_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # AG-16
    async with api(tmp_path / "p") as served, served.client(**{"idempotency-key": "k"}) as client:
        real = served.ledger.runs.claim_key

        async def claim(*given: Any, **more: Any) -> str:
            assert served.executor.turns == []
            await real(*given, **more)
            raise Fault(FaultType.TRANSPORT, "the connection broke")

        monkeypatch.setattr(served.ledger.runs, "claim_key", claim)
        assert (await client.post(CHAT, json={"message": "x"})).status_code == 503
        assert len(served.kernel.in_flight) == 0
        monkeypatch.undo()
        again = await client.post(CHAT, json={"message": "x"})
        third = await client.post(CHAT, json={"message": "x"})
        assert again.status_code == 200
        assert again.json() == third.json()
        assert [turn.text for turn in served.executor.turns] == ["x"]


async def test_a_key_whose_run_never_began_begins_it(tmp_path: Path) -> None:
    body = {"message": "x"}
    async with api(tmp_path / "p") as served, served.client(**{"idempotency-key": "k"}) as client:
        # A fleet that died between the two has left this.
        await served.ledger.runs.claim_key("anonymous", "k", "r1", digest_of("echo", body))
        answers = [(await client.post(CHAT, json=body)).json() for _ in range(2)]
        assert [answer["runId"] for answer in answers] == ["r1", "r1"]
        assert len(served.executor.turns) == 1
        # What was deleted with its thread is not done once more.
        await client.delete(f"/threads/{answers[0]['threadId']}")
        served.rest._replay._logs.clear()
        assert (await client.post(CHAT, json=body)).status_code == 404
        assert len(served.executor.turns) == 1


async def test_a_run_that_has_no_thread_is_known_from_its_first_moment_on(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        api(tmp_path / "p", gate.answer) as served,
        served.client("alice") as client,
        served.client("bob") as bob,
    ):
        forgetful(served)
        asked = asyncio.create_task(client.post(CHAT, json={"message": "x"}))
        async with asyncio.timeout(30):
            await gate.reached.wait()
        ((run,), nobody) = [
            (await each.get("/runs", params={"status": "running"})).json()["items"] for each in (client, bob)
        ]
        assert (run["agent"], run["surface"], run["status"], run["threadId"]) == (
            "echo",
            "rest",
            "running",
            None,
        )
        assert nobody == []
        served.rest._replay._logs.clear()  # as after another surface asked for it
        assert (await client.get(f"/runs/{run['id']}")).json()["startedAt"] == run["startedAt"]
        assert (await bob.get(f"/runs/{run['id']}")).status_code == 404
        assert (await bob.delete(f"/runs/{run['id']}")).status_code == 404
        assert (await client.delete(f"/runs/{run['id']}")).status_code == 202
        await asked

        async def known() -> list[str]:
            one = (await client.get(f"/runs/{run['id']}")).json()["status"]
            listed = (await client.get("/runs")).json()["items"]
            assert [each["id"] for each in listed] == [run["id"]]
            return [one, listed[0]["status"]]

        assert await known() == ["cancelled", "cancelled"]  # nobody wrote it down yet
        await served.kernel.close_records()
        assert await known() == ["cancelled", "cancelled"]


async def test_runs_that_are_not_written_yet_stand_in_their_places_in_every_page(tmp_path: Path) -> None:
    gate = Gate()

    async def answer(turn: ExecutorTurn, emit: Emit) -> TurnResult:
        if turn.text == "wait":
            return await gate.answer(turn, emit)
        return await FakeExecutor().run(turn, emit)

    async with api(tmp_path / "p", answer) as served, served.client() as client:
        forgetful(served)
        asked: list[asyncio.Task[httpx2.Response]] = []
        for text in ("a", "wait", "b", "wait", "c"):
            task = asyncio.create_task(client.post(CHAT, json={"message": text}))
            await until(lambda: len(served.executor.turns) > len(asked))
            asked.append(task)
            if text != "wait":
                await task
        whole = [run["id"] for run in (await client.get("/runs")).json()["items"]]
        assert len(whole) == 5
        pieces: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = (await client.get("/runs", params={"limit": 2, "cursor": cursor})).json()
            pieces += [run["id"] for run in page["items"]]
            cursor = page["next"]
        assert pieces == whole
        gate.open.set()
        await asyncio.gather(*asked)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_cannot_be_kept_is_told_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    # UN-4
    async def full(*given: Any, **more: Any) -> int:
        raise Fault(FaultType.TRANSPORT, "the disk is full")

    async with api(tmp_path / "p") as served, served.client() as client:
        first = (await client.post(CHAT, json={"message": "one"})).json()
        asked = {"message": "two", "threadId": first["threadId"], "stream": stream}
        for verb, turns in (("begin", 1), ("finish", 2)):
            with monkeypatch.context() as broken:
                broken.setattr(served.ledger.threads, verb, full)
                answer = await client.post(CHAT, json=asked)
            assert len(served.executor.turns) == turns
            if stream:
                chunks = chunks_in(answer.content)
                data, text = chunks[-1]["data"], text_in(chunks)
            else:
                assert answer.status_code == 503
                assert "retry-after" in answer.headers
                data = answer.json()["data"]
                text = data.get("partial", "")
            assert (data["type"], data["retryable"]) == ("TRANSPORT", True)
            assert text == ("2:two" if verb == "finish" else "")
        # The thread goes on from what is kept, and shows what was not.
        after = (await client.post(CHAT, json={**asked, "message": "three", "stream": False})).json()
        assert after["text"] == "2:three"
        rows = (await client.get(f"/threads/{first['threadId']}/messages")).json()["items"]
        assert [row["status"] for row in rows] == ["complete", "complete", "error", "complete", "complete"]
        runs = (await client.get("/runs", params={"status": "error"})).json()["items"]
        assert {run["partial"] for run in runs} == {None, "2:two"}


async def test_its_routes_are_made_once_and_by_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RestApi] = []
    make = RestApi.make

    def noted(rest: RestApi) -> FastAPI:
        made.append(rest)
        return make(rest)

    monkeypatch.setattr(RestApi, "make", noted)
    async with api(tmp_path) as served, served.client() as client:
        assert made == []
        answers = await asyncio.gather(*(client.get("/whoami") for _ in range(5)))
        assert [answer.status_code for answer in answers] == [200] * 5
        assert made == [served.rest]


async def test_a_parameter_that_a_path_does_not_take_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with api(tmp_path / "p") as served, served.client() as client:
        assert (await client.post("/agents", json={"name": "made"})).status_code == 201
        wrong = [
            (await client.get("/runs?agnet=echo"), "agnet"),
            (await client.get("/threads", params={"serach": "x"}), "serach"),
            (await client.delete("/agents/made?verison=7"), "verison"),
            (await client.post(f"{CHAT}?stream=true", json={"message": "x"}), "stream"),
        ]
        for answer, name in wrong:
            assert answer.status_code == 400
            assert answer.json()["error"].startswith(f"{name}: there is no such parameter; ")
            assert answer.json()["data"]["key"] == name
        assert "known: agent, thread, status" in wrong[0][0].json()["error"]
        assert (await client.get("/agents/made?limit=200")).status_code == 200
        assert served.executor.turns == []


def wrong_values(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """Values that a parameter refuses, each with what is said then."""
    if any_of := schema.get("anyOf"):
        return [each for one in any_of for each in wrong_values(one)]
    if schema.get("type") == "integer":
        wrong = [("x", "must be a whole number"), ("0", "must be at least 1")]
        return wrong + ([(str(schema["maximum"] + 1), "must be at most ")] if "maximum" in schema else [])
    if options := schema.get("enum"):
        return [(options[0] + "x", "must be ")]
    return [("x" * (schema["maxLength"] + 1), "must have ")] if "maxLength" in schema else []


async def test_a_value_that_no_parameter_takes_is_answered_in_plain_words_by_every_path(
    tmp_path: Path,
) -> None:
    async with api(tmp_path / "p") as served, served.client() as client:
        paths = (await client.get("/openapi.json")).json()["paths"]
        asked = set()
        for path, operations in paths.items():
            where = path.removeprefix("/api/v1").replace("{number}", "1")
            for method, operation in operations.items():
                for each in operation.get("parameters", ()) if method in ("get", "delete") else ():
                    for value, said in wrong_values(each["schema"]) if each["in"] == "query" else ():
                        name = each["name"]
                        answer = await client.request(method.upper(), where, params={name: value})
                        asked.add(name)
                        assert answer.status_code == 400, (path, name, value)
                        error = answer.json()["error"]
                        assert error.startswith(f"{name}: {said}") and error.endswith(", or leave it out"), (
                            error
                        )
                        assert "should" not in error
        assert {"limit", "cursor", "order", "status", "by", "version"} <= asked
        near = await client.get("/threads/x/messages", params={"order": "decs"})
        assert near.json()["error"] == "order: must be asc or desc; did you mean desc, or leave it out"
        body = await client.post(CHAT, json={"message": 3})
        assert body.json()["error"] == "message: must be a text"
