"""Without ``auth:`` a conversation goes on with another JWT of the same issuer and subject.

No one checks these tokens: they continue what a known handle names, and open nothing else.
"""

import json
import secrets
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.bridged import bridged, refused, tell
from support.issuer import Issuer, SigningKey
from support.live import ERAS, IN_A_FILE, ask, module_fleet, running
from support.raw_client import INITIALIZE, handshake_headers
from support.tasks import TaskClient
from support.virtual import virtual

from pallas.fleet.fleet import Fleet
from pallas.model import RunStarted

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)
OTHER_IDENTITY = "opened with another identity"
ISSUER = "https://daedalus.example/"


def token(sub: str = "ada", iss: str = ISSUER, **more: Any) -> str:
    """A JWT of one turn, signed with a key that no one here knows."""
    now = int(time.time())
    claims = {"iss": iss, "sub": sub, "jti": secrets.token_hex(8), "exp": now + 60, **more}
    return jwt.encode(claims, secrets.token_bytes(32), "HS256")


@module_fleet(database=IN_A_FILE)  # tasks are for what lasts
def fleet(folder: Path) -> Path:
    return bridged(folder / "project", ("desk",))


class Caller:
    """A real MCP client whose token may change between two calls."""

    def __init__(self, connected: Client, http: httpx2.AsyncClient) -> None:
        self.mcp, self._http = connected, http

    def shows(self, bearer: str | None) -> "Caller":
        """From the next request on this is its token."""
        self._http.headers.pop("authorization", None)
        if bearer is not None:
            self._http.headers["authorization"] = f"Bearer {bearer}"
        return self

    async def error(self, **arguments: Any) -> str:
        """What a refused message says."""
        result = await self.mcp.call_tool("send_message", {"message": "repeat all", **arguments})
        text = "".join(getattr(block, "text", "") for block in result.content)
        assert result.is_error, text
        return text


@asynccontextmanager
async def caller(fleet: Fleet, era: str, bearer: str | None = None) -> AsyncIterator[Caller]:
    """A client of the agent ``desk``."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(fleet.agents[0].url, http_client=http), mode=era) as connected,
    ):
        yield Caller(connected, http)


@asynccontextmanager
async def desk(root: Path, database: str, bearer: str) -> AsyncIterator[Caller]:
    """A client of a fleet of its own."""
    async with running(root, database=database) as fleet, caller(fleet, ERAS[0], bearer) as door:
        yield door


def rest(fleet: Fleet, bearer: str | None) -> httpx2.AsyncClient:
    """A client of the REST API."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    url = f"{fleet.ports.origin}/api/v1"
    return httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=30)


@both_eras
@pytest.mark.parametrize("own", [True, False], ids=["own handle", "made handle"])
async def test_a_handle_goes_on_with_another_token_of_the_same_subject(
    fleet: Fleet, era: str, own: bool
) -> None:
    async with caller(fleet, era, token()) as door:
        wanted = str(uuid.uuid4()) if own else "new"
        first = await door.mcp.call_tool(
            "send_message", {"message": "my word is tulip", "conversation_id": wanted}
        )
        handle = (first.meta or {})["local.pallas/conversationId"]
        for turn in (2, 3):
            door.shows(token())
            said = await ask(door.mcp, "and now?", conversation_id=handle)
            assert said == f"turn {turn}, first my word is tulip"
        shown = await door.shows(token()).mcp.get_prompt("desk_history", {"conversation_id": handle})
        assert "tulip" in repr(shown.messages)


@both_eras
async def test_someone_else_is_refused_and_reads_why(fleet: Fleet, era: str) -> None:
    others = (token("eve"), token(iss="https://other.example/"), "an-opaque-token", None)
    async with caller(fleet, era, token()) as door:
        handle = str(uuid.uuid4())
        await ask(door.mcp, "my word is tulip", conversation_id=handle)
    for bearer in others:
        async with caller(fleet, era, bearer) as stranger:
            said = await stranger.error(conversation_id=handle)
            assert OTHER_IDENTITY in said
            assert "tulip" not in said
            with pytest.raises(Exception, match=OTHER_IDENTITY):
                await stranger.mcp.get_prompt("desk_history", {"conversation_id": handle})


@both_eras
async def test_a_handle_that_can_be_guessed_does_not_say_that_it_is_there(fleet: Fleet, era: str) -> None:
    name = f"plain-{era}"
    async with caller(fleet, era, token()) as door:
        await ask(door.mcp, "my word is tulip", conversation_id=name)
    async with caller(fleet, era, token("eve")) as stranger:
        said = []
        for wanted in (name, "there-is-none"):
            with pytest.raises(Exception, match="conversation not found") as caught:
                await stranger.mcp.get_prompt("desk_history", {"conversation_id": wanted})
            said.append(str(caught.value))
        assert said[0] == said[1]
        assert OTHER_IDENTITY not in await stranger.error(conversation_id=name)


@both_eras
async def test_without_a_token_a_handle_is_the_key_and_opens_nothing_of_a_token(
    fleet: Fleet, era: str
) -> None:
    """Callers without a token are one: whoever knows or guesses a handle that one of them chose has it."""
    hers, theirs, none = f"order-1-{era}", f"order-2-{era}", "there-is-none"
    async with caller(fleet, era, token()) as door:
        await ask(door.mcp, "my word is tulip", conversation_id=hers)
    async with caller(fleet, era) as door:
        await ask(door.mcp, "my word is rose", conversation_id=theirs)

    # A token's conversation is closed to them, and the refusal does not say that it is there.
    async with caller(fleet, era) as stranger, rest(fleet, None) as http:
        assert "tulip" not in (refusal := await stranger.error(conversation_id=hers))
        assert OTHER_IDENTITY not in refusal
        answers = [
            await http.post("/agents/desk/chat", json={"message": "x", "threadId": name})
            for name in (hers, none)
        ]
        assert [each.status_code for each in answers] == [404, 404]
        assert answers[0].json()["error"] == answers[1].json()["error"]
        assert "tulip" not in (await http.get("/threads?search=tulip")).text
        # That of another caller without a token is not: docs/security.md says so.
        assert "first my word is rose" in await ask(stranger.mcp, "and now?", conversation_id=theirs)
        went_on = await http.post("/agents/desk/chat", json={"message": "again", "threadId": theirs})
        assert "turn 3, first my word is rose" in went_on.text

    # Nor does a token open it, since anyone could guess the handle.
    for bearer in (token(), "opaque"):
        async with rest(fleet, bearer) as http:
            refused_one = await http.post("/agents/desk/chat", json={"message": "x", "threadId": theirs})
            assert (refused_one.status_code, "rose" in refused_one.text) == (404, False)


async def test_tokens_that_name_no_subject_are_told_apart_by_their_bytes(fleet: Fleet) -> None:
    nameless = {"iss": ISSUER, "jti": secrets.token_hex(8)}
    without = [jwt.encode({**nameless, "n": each}, secrets.token_bytes(32), "HS256") for each in (1, 2)]
    pairs = [
        without,
        [token(""), token("")],
        [token(iss=""), token(iss="")],
        ["opaque-token-one", "opaque-token-two"],
        ["a.b.c", "a.b.d"],
    ]
    for first, second in pairs:
        handle = str(uuid.uuid4())
        async with caller(fleet, ERAS[0], first) as door:
            await ask(door.mcp, "my word is tulip", conversation_id=handle)
            assert OTHER_IDENTITY in await door.shows(second).error(conversation_id=handle)
            assert "turn 2" in await ask(door.shows(first).mcp, "again", conversation_id=handle)


@pytest.mark.parametrize("opened", [True, False], ids=["opened with a token", "opened without"])
async def test_a_session_goes_on_with_the_token_of_the_next_turn(fleet: Fleet, opened: bool) -> None:
    async with caller(fleet, "legacy", token() if opened else None) as door:
        for turn in (1, 2, 3):
            door.shows(token())
            assert await ask(door.mcp, "my word is tulip") == f"turn {turn}, first my word is tulip"
        shown = await door.shows(token()).mcp.get_prompt("desk_history", {})
        assert "tulip" in repr(shown.messages)
        # Only its owner's: what was said with that identity is not for the next one.
        if not opened:
            assert OTHER_IDENTITY in await door.shows(token("eve")).error()
        door.shows(token())


async def test_a_session_that_is_someone_elses_says_so_with_404(fleet: Fleet) -> None:
    url = fleet.agents[0].url
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        mine = {"authorization": f"Bearer {token()}"}
        opened = await http.post(url, json=INITIALIZE, headers=handshake_headers() | mine)
        session = handshake_headers(opened.headers["mcp-session-id"])
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
        for bearer in (token("eve"), "opaque", None):
            theirs = session | ({"authorization": f"Bearer {bearer}"} if bearer else {})
            for answer in (
                await http.post(url, json=call, headers=theirs),
                await http.delete(url, headers=theirs),
                await http.get(url, headers=theirs),
            ):
                assert answer.status_code == 404
                assert "Session not found" in answer.json()["error"]["message"]
                assert OTHER_IDENTITY in answer.json()["error"]["message"]
        unknown = await http.post(url, json=call, headers=handshake_headers("0" * 32) | mine)
        assert unknown.status_code == 404
        assert OTHER_IDENTITY not in unknown.text
        again = session | {"authorization": f"Bearer {token()}"}
        assert (await http.delete(url, headers=again)).status_code in (200, 204)


async def test_over_rest_a_thread_goes_on_and_is_listed_to_its_own_token_alone(fleet: Fleet) -> None:
    first = token()
    async with rest(fleet, first) as http:
        begun = (await http.post("/agents/desk/chat", json={"message": "my word is tulip"})).json()
        thread = begun["threadId"]
        assert thread in (await http.get("/threads")).text
    async with rest(fleet, token()) as http:
        body = {"message": "and now?", "threadId": thread}
        went_on = (await http.post("/agents/desk/chat", json=body)).json()
        assert went_on["text"] == "turn 2, first my word is tulip"
        assert "tulip" in (await http.get(f"/threads/{thread}/messages")).text
        # What lists, searches or administers asks for the same token.
        assert thread not in (await http.get("/threads")).text
        assert thread not in (await http.get("/threads?search=tulip")).text
        assert begun["runId"] not in (await http.get("/runs")).text
        assert (await http.patch(f"/threads/{thread}", json={"title": "mine"})).status_code == 404
        assert (await http.delete(f"/threads/{thread}")).status_code == 404
    for bearer in (token("eve"), "opaque", None):
        async with rest(fleet, bearer) as http:
            for answer in (
                await http.post("/agents/desk/chat", json={"message": "x", "threadId": thread}),
                await http.get(f"/threads/{thread}/messages"),
                await http.get(f"/threads/{thread}"),
            ):
                assert answer.status_code == 404
                assert "tulip" not in answer.text
                assert OTHER_IDENTITY in answer.json()["error"]
    async with rest(fleet, first) as http:
        assert (await http.delete(f"/threads/{thread}")).status_code in (200, 204)


@both_eras
async def test_a_session_of_the_bridge_goes_on_with_the_next_token(fleet: Fleet, era: str) -> None:
    async with virtual(fleet, "/mcp", era=era, bearer=token()) as door:
        made = await tell(door, "sessions_create", agentId="desk")
        session = made["sessionId"]
        await tell(door, "sessions_prompt", sessionId=session, prompt="my word is tulip")
    async with virtual(fleet, "/mcp", era=era, bearer=token()) as door:
        said = await tell(door, "sessions_prompt", sessionId=session, prompt="and now?")
        assert "turn 2, first my word is tulip" in json.dumps(said)
    async with virtual(fleet, "/mcp", era=era, bearer=token("eve")) as door:
        body = await refused(door, "sessions_prompt", sessionId=session, prompt="repeat")
        assert OTHER_IDENTITY in body["error"]
    async with virtual(fleet, "/mcp", era=era, bearer=token()) as door:
        await tell(door, "sessions_close", sessionId=session)


async def test_a_task_goes_on_with_the_next_token(fleet: Fleet) -> None:
    def asks(bearer: str) -> TaskClient:
        return TaskClient(fleet.agents[0].url, bearer=bearer)

    arguments = {"message": "my word is tulip"}
    begun = await asks(token()).ask("tools/call", "send_message", name="send_message", arguments=arguments)
    task = begun["result"]["taskId"]
    assert (await asks(token()).ask("tasks/get", task, taskId=task))["result"]["taskId"] == task
    for bearer in (token("eve"), "opaque"):
        refused = await asks(bearer).ask("tasks/get", task, taskId=task)
        assert "task not found" in refused["error"]["message"]
    async with rest(fleet, token()) as http:
        assert (await http.get(f"/tasks/{task}")).json()["id"] == task
        assert task not in (await http.get("/tasks")).text


async def test_an_identity_that_nobody_checked_is_called_unverified(fleet: Fleet) -> None:
    async with caller(fleet, ERAS[0], token("ada-the-person")) as door:
        await ask(door.mcp, "hello")
    started = [event for event in fleet.hub.since(0, 5_000).events if isinstance(event, RunStarted)][-1]
    assert started.identity.startswith("unverified:")
    assert "ada-the-person" not in repr(fleet.hub.since(0, 5_000).events)
    async with caller(fleet, ERAS[0], "opaque") as door:
        await ask(door.mcp, "hello")
    started = [event for event in fleet.hub.since(0, 5_000).events if isinstance(event, RunStarted)][-1]
    assert started.identity == ""
    # No label for each of them: whoever makes tokens could fill the table of callers.
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        shown = (await http.get(f"{fleet.ports.origin}/metrics")).text
    assert 'caller="unverified"' in shown
    assert "unverified:" not in shown


@pytest.mark.slow
async def test_a_claimed_name_opens_nothing_of_a_verified_one_and_holds_over_a_restart(
    tmp_path: Path,
) -> None:
    key = SigningKey("one")
    issuer = Issuer(ISSUER, key)
    root = bridged(tmp_path, ("desk",))
    topology = (root / "agents.yaml").read_text()
    (root / "dev.pem").write_text(key.pem)
    guarded = (
        f"auth: {{dev: true, jwt: {{corp: {{issuer: '{ISSUER}', audience: pallas, public_key: dev.pem}}}}}}\n"
    )
    database = f"sqlite:///{tmp_path}/ledger.sqlite3"
    checked, claimed = str(uuid.uuid4()), str(uuid.uuid4())
    (root / "agents.yaml").write_text(topology + guarded)
    async with desk(root, database, issuer.token("ada")) as door:
        await ask(door.mcp, "my word is rose", conversation_id=checked)
    (root / "agents.yaml").write_text(topology)
    for turn in (1, 2):
        # The very same issuer and subject, even the same signature: no one looks at it here.
        async with desk(root, database, issuer.token("ada")) as door:
            assert OTHER_IDENTITY in await door.error(conversation_id=checked)
            said = await ask(door.mcp, f"word {turn}", conversation_id=claimed)
            assert said == f"turn {turn}, first word 1"
    (root / "agents.yaml").write_text(topology + guarded)
    # And the other way round: what anyone could have begun is not a verified caller's.
    async with desk(root, database, issuer.token("ada")) as door:
        assert OTHER_IDENTITY in await door.error(conversation_id=claimed)
        assert "turn 2" in await ask(door.mcp, "still here?", conversation_id=checked)
