"""Every port of a fleet, also of an agent in error: who is answered, and what hostile requests do."""

import asyncio
import importlib.metadata
import json
import logging
import re
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil
import pytest
import pytest_asyncio
from packaging.version import Version
from support.listeners import open_listeners
from support.live import ERAS, ask, client, running, write_project
from support.offline import offline_model

from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, Notice

SCRIPT = "rules:\n  - {when: {last: user}, say: fine}\n"
SOURCES: Final = Path(__file__).parents[2] / "runtime" / "pallas"
# Every path that is served somewhere, and one that is not.
PATHS = (
    "/mcp", "/mcp/", "/mcp/server-card", "/.well-known/mcp/server.json", "/v0.1/servers",
    "/.well-known/ai-catalog.json", "/healthz", "/readyz", "/metrics", "/v1/chat/completions", "/v1/models",
    "/nothing/here",
)  # fmt: skip
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    },
}
BOTH = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    root = write_project(
        tmp_path_factory.mktemp("listeners"),
        {"well": None, "broken": "raise RuntimeError('no')\n"},
        **offline_model(SCRIPT, top={"server_cards": True}),
    )
    async with running(root) as running_fleet:
        states = {agent.name: agent.state for agent in running_fleet.agents}
        assert states == {"well": AgentState.READY, "broken": AgentState.ERROR}
        yield running_fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=60, trust_env=False) as plain:
        yield plain


def ports(fleet: Fleet) -> dict[str, int]:
    """Every port the fleet listens on, from the sockets themselves: one that is added later is in it."""
    found = {name: listener.port for name, listener in open_listeners(fleet)}
    assert set(found) == {"agent well", "agent broken", "registry", "scripted"}
    return found


def well(fleet: Fleet) -> str:
    return f"http://127.0.0.1:{ports(fleet)['agent well']}/mcp"


async def raw(port: int, request: bytes) -> bytes:
    """What a port answers to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        async with asyncio.timeout(60):
            return await reader.read(65_536)
    finally:
        writer.close()


# --- DNS rebinding


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS", "HEAD"])
async def test_a_name_of_someone_else_is_refused_on_every_port_and_path(
    fleet: Fleet, http: httpx2.AsyncClient, method: str
) -> None:
    # PR-8
    for name, port in ports(fleet).items():
        for path in PATHS:
            url = f"http://127.0.0.1:{port}{path}"
            answer = await http.request(method, url, headers={"host": "evil.example"})
            assert answer.status_code == 421, (name, path)
            answer = await http.request(method, url, headers={"origin": "http://evil.example"})
            assert answer.status_code == 403, (name, path)
            assert "access-control-allow-origin" not in answer.headers, (name, path)
            assert "evil" not in answer.text, (name, path)


async def test_the_right_name_is_answered_on_every_port(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    # PR-8: the test above proves nothing where everything is refused
    served = {
        "agent well": "/mcp/server-card",
        "agent broken": "/mcp/server-card",
        "registry": "/metrics",
        "scripted": "/v1/models",
    }
    for name, port in ports(fleet).items():
        answer = await http.get(f"http://127.0.0.1:{port}{served[name]}")
        assert answer.status_code == 200, name


@pytest.mark.parametrize(
    "host",
    [
        b"127.0.0.1/mcp/server-card?", b"127.0.0.1/healthz#", b"user@127.0.0.1", b"127.0.0.1:99999999",
        b"127.0.0.1, evil.example", b"evil.example:80@127.0.0.1", b"[::1", b"", b"127.0.0.1\x00",
        b"127.0.0.1\\evil", b"localhost.evil.example",
    ],
)  # fmt: skip
async def test_a_malformed_host_decides_nothing_about_the_path(fleet: Fleet, host: bytes) -> None:
    # PR-8: a Host that changed the path of a request was a way around path-based checks (BadHost)
    for name, port in ports(fleet).items():
        request = b"GET /nothing/here HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n"
        status = (await raw(port, request)).split(b"\r\n", 1)[0]
        assert status.split(b" ")[1] in (b"400", b"421"), (name, status)


async def test_starlette_is_past_the_releases_with_these_holes() -> None:
    assert Version(importlib.metadata.version("starlette")) >= Version("1.0.1")


async def test_a_fleet_listens_on_the_ports_of_its_project_and_on_no_other(fleet: Fleet) -> None:
    # A port for control that nobody guards was how a page on the web ran programs (CVE-2025-49596).
    assert listening() == set(ports(fleet).values())


def listening() -> set[int]:
    """The TCP ports on which this process listens, as the kernel has it."""
    found = psutil.Process().net_connections(kind="tcp")
    return {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}


# --- what requests are taken


@pytest.mark.parametrize(
    ("headers", "body", "statuses"),
    [
        ({"content-type": "text/plain"}, json.dumps(INITIALIZE), (400, 415)),
        ({"content-type": "application/x-www-form-urlencoded"}, "a=b", (400, 415)),
        ({"content-type": "multipart/form-data; boundary=x"}, "--x--", (400, 415)),
        ({}, json.dumps([INITIALIZE, INITIALIZE]), (400,)),
        ({}, "{", (400,)),
        ({}, "[]", (400,)),
        ({}, "null", (400,)),
        ({}, '{"jsonrpc": "2.0", "id": 1}', (400,)),
        ({}, "\ufeff\x00\xff", (400,)),
        ({}, "[" * 50_000, (400,)),
        ({"accept": "application/json"}, json.dumps(INITIALIZE), (406,)),
        ({"accept": "text/html"}, json.dumps(INITIALIZE), (406,)),
        ({"mcp-session-id": "0" * 32}, json.dumps({**INITIALIZE, "method": "tools/list"}), (404,)),
        ({"mcp-session-id": "../../etc/passwd"}, json.dumps({**INITIALIZE, "method": "ping"}), (400, 404)),
    ],
)
async def test_a_request_that_is_none_is_refused_and_holds_no_session(
    fleet: Fleet, http: httpx2.AsyncClient, headers: dict[str, str], body: str, statuses: tuple[int, ...]
) -> None:
    for _ in range(3):
        answer = await http.post(well(fleet), content=body.encode("utf-8"), headers=BOTH | headers)
        assert answer.status_code in statuses, answer.text
        if answer.status_code != 404:  # there the caller's own is repeated
            session = answer.headers.get("mcp-session-id")
            assert session is None or not await is_alive(http, well(fleet), session)
        assert "Traceback" not in answer.text


async def is_alive(http: httpx2.AsyncClient, url: str, session: str) -> bool:
    """Whether the server knows the session."""
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    answer = await http.post(url, json=ping, headers=BOTH | {"mcp-session-id": session})
    return answer.status_code != 404


async def test_a_web_page_gets_no_permission_to_call(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    asked = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    for name, port in ports(fleet).items():
        for path in ("/mcp", "/v1/chat/completions", "/metrics"):
            answer = await http.options(f"http://127.0.0.1:{port}{path}", headers=asked)
            assert "access-control-allow-origin" not in answer.headers, (name, path)


async def test_no_part_of_a_file_is_served(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    for path in ("/.well-known/mcp/server.json", "/metrics", "/healthz"):
        url = f"http://127.0.0.1:{ports(fleet)['registry']}{path}"
        answer = await http.get(url, headers={"range": "bytes=" + ",".join("0-1" for _ in range(200))})
        assert answer.status_code == 200
        assert "content-range" not in answer.headers
        assert "accept-ranges" not in answer.headers
    served = re.compile(r"\b(FileResponse|StaticFiles|send_from_directory)\b")
    assert [path for path in SOURCES.rglob("*.py") if served.search(path.read_text("utf-8"))] == []


# --- what hostile bytes and vanishing callers do


async def test_garbage_and_torn_requests_leave_every_port_answering(
    fleet: Fleet, http: httpx2.AsyncClient
) -> None:
    garbage = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
        b"\x00" * 4096 + b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"\xff\r\n" * 50 + b"\r\n",
    ]
    for name, port in ports(fleet).items():
        for bytes_ in garbage:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(bytes_)
            writer.write_eof()
            async with asyncio.timeout(60):
                status = (await reader.read(65_536)).split(b"\r\n", 1)[0]
            writer.close()
            assert b" 2" not in status[:13], (name, bytes_[:40], status)
        # In the middle of a head, of a body, and right after a whole request.
        body = json.dumps(INITIALIZE).encode()
        head = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\ncontent-type: application/json\r\n"
        head += b"accept: application/json, text/event-stream\r\nContent-Length: %d\r\n" % len(body)
        for torn in (head[:40], head + b"\r\n" + body[:20], head + b"\r\n" + body):
            for _ in range(5):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
                writer.write(torn)
                await writer.drain()
                writer.transport.abort()
    await test_the_right_name_is_answered_on_every_port(fleet, http)
    for era in ERAS:
        async with client(fleet, "well", era=era) as caller:
            assert await ask(caller, "still there?") == "fine"


# --- whose a session and a conversation is


async def test_a_session_is_not_found_with_another_credential(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    # PR-19
    url = well(fleet)
    # One that was opened without a token is its id's alone: docs/security.md.
    for owner, others in (("Bearer aaa-1", ("Bearer bbb-2", None)), (None, ())):
        mine = {"authorization": owner} if owner else {}
        opened = await http.post(url, json=INITIALIZE, headers=BOTH | mine)
        session = opened.headers["mcp-session-id"]
        assert re.fullmatch(r"[0-9a-f]{32}", session)  # 122 random bits and more: no counter, no clock
        named = BOTH | {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await http.post(url, json=initialized, headers=named | mine)).status_code == 202
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/list"}
        for other in others:
            theirs = named | ({"authorization": other} if other else {})
            for answer in (
                await http.post(url, json=call, headers=theirs),
                await http.delete(url, headers=theirs),
                await http.get(url, headers=theirs),
            ):
                assert answer.status_code == 404
                assert "Session not found" in answer.text
        assert (await http.post(url, json=call, headers=named | mine)).status_code == 200
        assert (await http.delete(url, headers=named | mine)).status_code in (200, 204)


@pytest.mark.parametrize("era", ERAS)
async def test_a_conversation_of_someone_else_is_not_found(fleet: Fleet, era: str) -> None:
    # PR-19: in the same words as one that does not exist
    handle = f"mine-{era}"
    async with client(fleet, "well", era=era, bearer="owner-token") as mine:
        assert await ask(mine, "the password is tulip", conversation_id=handle) == "fine"
    unknown: Any = None
    for bearer in ("other-token", None):
        async with client(fleet, "well", era=era, bearer=bearer) as other:
            taken = await other.call_tool("send_message", {"message": "x", "conversation_id": handle})
            assert taken.is_error
            assert "conversation not found" in repr(taken.content)
            assert "tulip" not in repr(taken.content)
            said = []
            for wanted in (handle, "there-is-none"):
                with pytest.raises(Exception, match="conversation not found") as caught:
                    await other.get_prompt("well_history", {"conversation_id": wanted})
                said.append(str(caught.value))
            assert said[0] == said[1]
            unknown = unknown or said[0]
            assert said[0] == unknown
    async with client(fleet, "well", era=era, bearer="owner-token") as mine:
        shown = await mine.get_prompt("well_history", {"conversation_id": handle})
        assert "tulip" in repr(shown.messages)


@pytest.mark.parametrize("era", ERAS)
async def test_a_handle_that_is_made_cannot_be_guessed_and_is_not_told(
    fleet: Fleet, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-19, PR-36
    caplog.set_level(logging.DEBUG)
    made = set()
    async with client(fleet, "well", era=era) as caller:
        for _ in range(5):
            result = await caller.call_tool("send_message", {"message": "hi", "conversation_id": "new"})
            made.add((result.meta or {})["local.pallas/conversationId"])
    assert len(made) == 5
    for handle in made:
        random = handle.removeprefix("conv-")
        assert len(random) * 6 >= 128
    seen = json.dumps([repr(event) for event in fleet.hub.since(0, 5_000).events])
    # The caller of this test logs too; what counts is what the fleet says.
    ours = "\n".join(each.getMessage() for each in caplog.records if each.name.startswith("pallas"))
    assert "run " in ours
    assert not [handle for handle in made if handle in seen or handle in ours]


async def test_a_websocket_is_not_opened_on_any_port(fleet: Fleet) -> None:
    upgrade = (
        b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    for name, port in ports(fleet).items():
        status = (await raw(port, upgrade)).split(b"\r\n", 1)[0]
        assert b" 101 " not in status, name


async def test_an_open_fleet_and_files_that_others_may_change_are_told_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write_project(tmp_path, {"desk": None}, top={"bind": "0.0.0.0"})
    (root / "agents" / "desk.py").chmod(0o666)
    async with running(root) as fleet:
        told = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        async with httpx2.AsyncClient(timeout=60, trust_env=False) as http:
            answer = await http.post(fleet.agents[0].url, headers={"host": "evil.example"})
            assert answer.status_code == 421
    for text in (
        "there is no inbound authentication",
        "agents/desk.py: can be written by its group and others",
    ):
        assert [line for line in told if text in line]
        assert text in caplog.text
