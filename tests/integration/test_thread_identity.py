"""A thread is one thing: one lock, one id, one instance, by whatever name and surface it is reached."""

import asyncio
import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.properties import examples
from support.served import Served, served, text_of
from support.surfaces import BRIDGES, MORE, SURFACES, rest, rows, say

pytestmark = pytest.mark.usefixtures("forked_children")

SCRIPT = """
delay: 0.02
rules:
  - when: {last: user, text: count}
    call: [{tool: counter__count, arguments: {}}]
  - when: {last: tool}
    say: "{{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""
HANDLERS = """
import asyncio
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text

both = asyncio.Barrier(2)


@dataclass
class Said:
    text: str


async def thread(payload, metadata):
    if payload.text == "together":
        async with asyncio.timeout(60):
            await both.wait()
    return HandlerResponse.respond(Text(metadata.thread_id))
"""
COUNTER = """
from stdio_server import StdioServer

server = StdioServer("counter")
calls = 0

@server.tool()
def count() -> str:
    global calls
    calls += 1
    return f"call {calls} of this process"

server.run()
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("identity")
    handler = {"kind": "handler", "module": None, "handler": "typed:thread", "payload": "typed:Said"}
    keys: dict[str, dict[str, Any]] = {
        "one": handler,
        "two": handler,
        "far": {**handler, "isolation": "process"},
        "own": {"instance_scope": "conversation", "max_instances": 4},
    }
    agents: dict[str, str | None] = {
        "boss": agent_module("boss"),
        "own": agent_module("own", ("counter",)),
        "one": None,
        "two": None,
        "far": None,
    }
    project = offline_project(
        root / "p",
        agents,
        SCRIPT,
        top={"bind": "127.0.0.1", "tasks": {"tools": True}},
        keys=keys,
        files={"typed.py": HANDLERS, "counter.py": COUNTER},
        config={"mcp": {"servers": {"counter": {"command": "python", "args": ["counter.py"]}}}},
    )
    with served(project, PALLAS_DATABASE_URL=f"sqlite:///{root}/ledger.sqlite3") as running:
        yield running


def unsigned(claims: dict[str, str]) -> str:
    """A JWT that no one signed."""
    parts = (json.dumps(each).encode() for each in ({"alg": "none", "typ": "JWT"}, claims))
    return ".".join([*(urlsafe_b64encode(each).decode().rstrip("=") for each in parts), ""])


async def in_session(client: Client, text: str) -> tuple[str, str]:
    """A message in the handshake-era session of that client: the answer, and the thread."""
    result = await client.call_tool("send_message", {"message": text})
    assert not result.is_error, text_of(result)
    return text_of(result), (result.meta or {})["local.pallas/threadId"]


class Talk:
    """One thread of ``boss``, and the names that it is reached by."""

    def __init__(self, fleet: Served, session: Client | None) -> None:
        self.fleet = fleet
        self.session = session
        self.names = ["" if session is not None else str(uuid4())]
        self.sent = 0
        self.answers: dict[str, str] = {}
        self.threads: set[str] = set()

    async def send(self, way: str, name: int) -> None:
        """A message by that surface, by one of the names."""
        text = f"message {self.sent} by {way}"
        self.sent += 1
        named = self.names[name % len(self.names)]
        if not named and self.session is not None:
            answer, thread = await in_session(self.session, text)
        else:
            answer, thread = await say(self.fleet, way, text, named)
        self.answers[text] = answer
        self.threads.add(thread)

    async def check(self) -> None:
        """Question and answer take turns, and each question was asked with all before it."""
        (thread,) = self.threads
        kept = await rows(self.fleet, thread)
        assert [row["role"] for row in kept] == ["user", "assistant"] * self.sent
        assert {row["status"] for row in kept} == {"complete"}
        for number in range(self.sent):
            question, answer = kept[2 * number : 2 * number + 2]
            assert answer["content"] == f"turn {number + 1}"
            assert self.answers[question["content"]] == answer["content"]


HISTORY = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
WAYS = (*SURFACES, "task", "delegate")
MESSAGES = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 1)), min_size=2, max_size=5)
EVERY = [(way, number) for number, way in enumerate(WAYS)]


@pytest.mark.slow
@examples(6)
@example(session=False, rounds=[EVERY, [(way, number + 1) for way, number in EVERY]], command=0)
@example(session=True, rounds=[EVERY, [(way, number + 1) for way, number in EVERY]], command=1)
@given(
    session=st.booleans(),
    rounds=st.lists(MESSAGES, min_size=1, max_size=2),
    command=st.none() | st.just(0),
)
def test_questions_of_one_thread_take_turns_whatever_surface_and_name_they_come_by(
    fleet: Served, session: bool, rounds: list[list[tuple[str, int]]], command: int | None
) -> None:
    # UN-1, C12, C19
    async def scenario() -> None:
        await fleet.says("running")
        async with AsyncExitStack() as stack:
            legacy = await stack.enter_async_context(fleet.client("boss", "legacy")) if session else None
            talk = Talk(fleet, legacy)
            # Of a handle that is new, or in a new session, two at once begin one thread.
            await asyncio.gather(*(talk.send(way, 0) for way in ERAS))
            talk.names += talk.threads
            for number, messages in enumerate(rounds):
                more = [("command", number)] if number == command else []
                await asyncio.gather(*(talk.send(way, name) for way, name in (*messages, *more)))
            await talk.check()

    asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["one", "far"])
@pytest.mark.parametrize("session", [False, True])
async def test_a_handler_is_told_one_thread_id_by_every_name_and_surface(
    fleet: Served, agent: str, session: bool
) -> None:
    # UN-1, HC-8, HC-25
    await fleet.says("running")
    handle = str(uuid4())
    async with fleet.client(agent, "legacy") as client:
        if session:
            told, thread = await in_session(client, "hello")
        else:
            told, thread = await say(fleet, ERAS[0], "hello", handle, agent)
            assert told == handle
        said = {told}
        for way in (*SURFACES, *MORE):
            for name in [thread] if session else [handle, thread]:
                answer, found = await say(fleet, way, "hello", name, agent)
                assert found == thread
                said.add(answer)
        if session:
            said.add((await in_session(client, "hello"))[0])
    assert len(said) == 1


@pytest.mark.slow
async def test_a_thread_id_stays_with_another_token_of_the_same_identity(fleet: Served) -> None:
    # HC-8, UN-1
    await fleet.says("running")

    async def told(token: str, name: str) -> tuple[str, str]:
        headers = {"authorization": f"Bearer {token}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(fleet.url("one"), http_client=http), mode=ERAS[0]) as client,
        ):
            arguments = {"message": "hello", "conversation_id": name}
            result = await client.call_tool("send_message", arguments)
            assert not result.is_error, text_of(result)
            return text_of(result), (result.meta or {})["local.pallas/threadId"]

    tokens = [unsigned({"iss": "https://issuer", "sub": "ann", "jti": str(number)}) for number in range(3)]
    said, thread = await told(tokens[0], "new")
    for token in tokens:
        assert await told(token, thread) == (said, thread)


@pytest.mark.slow
async def test_a_branch_is_linked_only_to_a_conversation_of_its_caller(fleet: Served) -> None:
    await fleet.says("running")

    async def said(bearer: str, **more: Any) -> str:
        """Begin a conversation as that caller; its thread."""
        async with (
            create_mcp_http_client(headers={"authorization": f"Bearer {bearer}"}) as http,
            Client(streamable_http_client(fleet.url("boss"), http_client=http), mode=ERAS[0]) as client,
        ):
            message = {"message": "hello", "conversation_id": "new", "history": HISTORY}
            result = await client.call_tool("send_message", message, meta=more)
            assert not result.is_error, text_of(result)
            thread: str = (result.meta or {})["local.pallas/threadId"]
            return thread

    async def origin_of(bearer: str, thread: str) -> tuple[Any, Any]:
        async with rest(fleet) as api:
            headers = {"authorization": f"Bearer {bearer}"}
            document = (await api.get(f"/threads/{thread}", headers=headers)).json()
            return document["branchedFrom"], document["branchedAt"]

    ann, bob = (unsigned({"iss": "https://issuer", "sub": name}) for name in ("ann", "bob"))
    first = await said(ann)
    assert await origin_of(ann, first) == (None, None)
    assert await origin_of(ann, await said(ann, **{"local.pallas/branchOf": first})) == (first, 2)
    for name in (first, "nothing of that name", "x" * 300, 7):
        assert await origin_of(bob, await said(bob, **{"local.pallas/branchOf": name})) == (None, None)


@pytest.mark.slow
async def test_two_agents_that_get_one_uuid_at_one_moment_are_both_told_it(fleet: Served) -> None:
    # HC-25
    await fleet.says("running")
    for _ in range(3):
        handle = str(uuid4())
        asked = (
            say(fleet, era, "together", handle, agent)
            for era, agent in zip(ERAS, ("one", "two"), strict=True)
        )
        answers = await asyncio.gather(*asked)
        assert [answer for answer, _ in answers] == [handle, handle]
        assert len({thread for _, thread in answers}) == 2


@pytest.mark.slow
async def test_an_instance_of_a_conversation_is_that_of_its_thread(fleet: Served) -> None:
    # UN-1
    await fleet.says("running")
    handle = str(uuid4())
    first, thread = await say(fleet, ERAS[0], "count", handle, "own")
    assert "call 1 of" in first
    number = 1
    for way in ("rest", "stream", "tool", "workbench", "delegate", *BRIDGES, *ERAS):
        for name in (thread, handle):
            number += 1
            assert f"call {number} of" in (await say(fleet, way, "count", name, "own"))[0]


@pytest.mark.slow
async def test_the_rest_api_finds_a_thread_by_its_callers_own_handle(fleet: Served) -> None:
    # UN-1
    await fleet.says("running")
    handle = f"ticket/{uuid4()}"
    _, thread = await say(fleet, ERAS[0], "hello", handle)
    async with rest(fleet) as api:
        answer = await api.post("/agents/boss/chat", json={"message": "again", "threadId": handle})
        assert (answer.json()["text"], answer.json()["threadId"]) == ("turn 2", thread)
        assert answer.headers["pallas-thread-id"] == thread
        listed = await api.get("/threads", params={"agent": "boss", "handle": handle})
        assert [each["id"] for each in listed.json()["items"]] == [thread]
        for params in ({"handle": "another"}, {"agent": "one", "handle": handle}):
            assert (await api.get("/threads", params=params)).json()["items"] == []
        plain = handle.removeprefix("ticket/")
        _, other = await say(fleet, ERAS[0], "hello", plain)
        assert (await api.get(f"/threads/{plain}")).json()["id"] == other
        assert len((await api.get(f"/threads/{plain}/messages")).json()["items"]) == 2
        await say(fleet, ERAS[0], "hello", plain, "one")
        several = await api.get(f"/threads/{plain}")
        assert several.status_code == 409
        assert "boss, one" in several.json()["error"]
        missing = await api.post("/agents/boss/chat", json={"message": "x", "threadId": "never used"})
        assert missing.status_code == 404
