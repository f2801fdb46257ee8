"""The control API and the log: who may read what was said, and how much of a handle stands in a record."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.bridged import bridged
from support.control import messages
from support.live import ask
from support.served import Served, served
from support.tasks import TaskClient
from support.waiting import poll

from pallas.model import Step, StepChanged
from pallas.surfaces.control.event_stream import for_lookers

pytestmark = pytest.mark.asyncio(loop_scope="module")
FULL, TEXTS, READ = (f"{kind}-token-of-the-tests" for kind in ("full", "texts", "read"))
QUESTION, ANSWER = "the-planted-question-7d1f", "first the-planted-question-7d1f"


@dataclass
class Place:
    """A fleet in a process of its own, and what was said in it."""

    fleet: Served
    handle: str
    thread: str
    run: str
    task: str

    def http(self, token: str) -> httpx2.AsyncClient:
        """A client of the control API."""
        return httpx2.AsyncClient(
            base_url=f"{self.fleet.registry}/api/v1/fleet",
            headers={"authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=30,
        )

    def rest(self) -> httpx2.AsyncClient:
        """A client of the REST API, without a token: nothing is asked on loopback."""
        return httpx2.AsyncClient(base_url=f"{self.fleet.registry}/api/v1", trust_env=False, timeout=30)

    async def events(self, token: str) -> str:
        """All events from the fleet's beginning to the end of the conversation's run."""
        seen = ""
        async with (
            asyncio.timeout(30),
            self.http(token) as http,
            http.stream("GET", "/events?since=0") as answer,
        ):
            async for kind, _, document in messages(answer):
                if kind == "events":
                    seen += json.dumps(document)
                    if "RunFinished" in seen:
                        break
        return seen


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    root = bridged(tmp_path_factory.mktemp("texts"), ("desk",), top={"bind": "127.0.0.1"})
    given = {
        "PALLAS_CONTROL_TOKEN": FULL,
        "PALLAS_CONTROL_TEXTS_TOKEN": TEXTS,
        "PALLAS_CONTROL_READ_TOKEN": READ,
        "PALLAS_WIRE_RECORD": "1",
        "PALLAS_LOG_LEVEL": "DEBUG",
    }
    with served(root, **given) as fleet:
        await fleet.says("ready")
        handle = str(uuid.uuid4())
        async with (
            create_mcp_http_client() as plain,
            Client(streamable_http_client(fleet.url("desk"), http_client=plain)) as door,
        ):
            said = await door.call_tool("send_message", {"message": QUESTION, "conversation_id": handle})
            assert await ask(door, "and now?", conversation_id=handle) == f"turn 2, {ANSWER}"
        meta: dict[str, Any] = said.meta or {}
        begun = await TaskClient(fleet.url("desk")).ask(
            "tools/call", "send_message", name="send_message", arguments={"message": QUESTION}
        )
        yield Place(
            fleet,
            handle,
            meta["local.pallas/threadId"],
            meta["local.pallas/runId"],
            begun["result"]["taskId"],
        )


async def test_a_token_that_may_look_reads_no_text(place: Place) -> None:
    seen = await place.events(READ)
    assert place.run in seen
    assert QUESTION not in seen
    async with place.http(READ) as http:
        assert (await http.get("/snapshot")).json()["access"] == "read"
        for path in (
            f"/runs/{place.run}/exchanges",
            f"/runs/{place.run}/steps/1",
            f"/runs/{place.run}/messages",
            f"/runs/{place.run}/steps",
            "/threads",
            f"/threads/{place.thread}/messages",
            f"/agents/desk/thread?which={place.thread}",
            "/tasks",
            f"/tasks/{place.task}",
        ):
            refused = await http.get(path)
            assert refused.status_code == 403, path
            assert QUESTION not in refused.text
            assert "PALLAS_CONTROL_TEXTS_TOKEN" in refused.json()["error"], path
        last = await poll(lambda: http.get("/runs"), lambda answer: "RunFinished" in answer.text)
        assert last.status_code == 200
        assert place.run in last.text
        assert QUESTION not in last.text
        assert QUESTION not in (await http.get("/snapshot")).text
        assert QUESTION not in (await http.get("/agents/desk")).text
        for file in (await http.get("/log")).json()["files"]:
            assert QUESTION not in (await http.get(f"/log/{file['id']}")).text


async def test_a_token_that_may_look_learns_of_a_step_only_what_it_is() -> None:
    # A digest would tell whether a text was guessed.
    step = Step(
        "r", 2, "tool", "desk__find", 1.0, "failed", url="http://x", seconds=0.5, digest="ab", fault="no"
    )
    seen = for_lookers(StepChanged(run_id="r", agent="desk", step=step))
    assert isinstance(seen, StepChanged)
    assert seen.step == Step("r", 2, "tool", "desk__find", 1.0, "failed", seconds=0.5)


@pytest.mark.parametrize("token", [TEXTS, FULL])
async def test_a_token_for_texts_reads_them(place: Place, token: str) -> None:
    assert QUESTION in await place.events(token)
    async with place.http(token) as http:
        for path in (
            f"/runs/{place.run}/exchanges",
            f"/threads/{place.thread}/messages",
            f"/tasks/{place.task}",
        ):
            answer = await http.get(path)
            assert answer.status_code == 200, (path, answer.text)
            assert QUESTION in answer.text, path
        await poll(lambda: http.get("/runs"), lambda answer: QUESTION in answer.text)


async def test_a_token_for_texts_changes_nothing(place: Place) -> None:
    async with place.http(TEXTS) as http:
        assert (await http.get("/snapshot")).json()["access"] == "texts"
        for method, path in (
            ("POST", f"/runs/{place.run}/cancel"),
            ("POST", f"/threads/{place.thread}/rename"),
            ("DELETE", f"/threads/{place.thread}"),
            ("DELETE", f"/tasks/{place.task}"),
            ("POST", "/agents/desk/stop"),
            ("POST", "/agents/desk/tools/call"),
        ):
            assert (await http.request(method, path)).status_code == 403, path


async def test_no_record_holds_a_whole_handle(place: Place) -> None:
    # PR-36
    async with place.http(FULL) as full, place.http(READ) as read, place.rest() as rest:
        made = (await rest.post("/agents/desk/chat", json={"message": "hi"})).json()["threadId"]
        spare = (await rest.post("/agents/desk/chat", json={"message": "hi"})).json()["threadId"]
        handles = [place.handle, place.thread, place.task, made, spare]
        for each in (made, place.handle, place.task):
            await read.delete(f"/threads/{each}")
            await read.post(f"/threads/{each}/rename", json={"title": "x"})
            await read.delete(f"/tasks/{each}")
            await rest.patch(f"/threads/{each}", json={"title": "x"})
            await rest.patch(f"/threads/{each}%0A", json={"title": "x"})
        assert (await full.post(f"/threads/{spare}/rename", json={"title": "mine"})).status_code == 200
        assert (await full.delete(f"/threads/{spare}")).status_code == 200
        await full.delete(f"/tasks/{place.task}")
        assert (await rest.delete(f"/threads/{made}")).status_code in (200, 204)
        await rest.delete(f"/tasks/{place.task}")
        for each in handles:
            await rest.delete(f"/threads/{each}")
            await rest.delete(f"/tasks/{each}")
        await rest.delete("/threads/that-comes-last")
    await place.fleet.logs("that-com")
    for where in [place.fleet.log.read_text(), "\n".join(place.fleet.err + place.fleet.out)]:
        assert not [each for each in handles if each in where]
    log = place.fleet.log.read_text()
    # Enough to tell two apart is still there.
    assert f"rename thread {spare[:8]}" in log
    assert f"/threads/{place.handle[:8]}" in log
    assert not [each for each in handles if each in await place.events(READ)]
