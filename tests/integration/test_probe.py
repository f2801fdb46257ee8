"""Downstream probes on real sockets, in both protocol eras."""

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from support.fake_downstreams import (
    Answer,
    FakeDownstream,
    event_stream,
    handshake,
    modern,
    newer,
    redirect,
    serving,
    slow,
    stateless_handshake,
    status,
    talking,
)
from support.odd_http import packed
from support.waiting import until

from pallas.config.models import DownstreamConfig
from pallas.health.probe import CACHE_SECONDS, TIMEOUT, Eras, Prober, health_of, probe, probe_client
from pallas.health.probe.server_probe import look
from pallas.model import AgentState, Downstream, HealthStatus, ProbeResult
from pallas.surfaces.published_agent import health_text

SECRET = "canary-4f9a2b7c1d"


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with probe_client() as client:
        yield client


def _http(origin: str, name: str = "notes", path: str = "/mcp", **options: Any) -> DownstreamConfig:
    return DownstreamConfig(name=name, transport="http", url=origin + path, **options)


async def _probe_fake(
    client: httpx2.AsyncClient, answer: Answer, **options: Any
) -> tuple[Downstream, FakeDownstream]:
    fake = FakeDownstream(answer)
    async with serving(fake) as origin:
        found = await probe(_http(origin, **options), client, {})
    return found, fake


async def test_a_modern_only_server_is_reachable_without_a_handshake(
    client: httpx2.AsyncClient,
) -> None:  # PI-13
    found, fake = await _probe_fake(client, modern)
    assert (found.reach, found.detail) == (ProbeResult.OK, "")
    assert [seen.rpc for seen in fake.seen] == ["server/discover"]


@pytest.mark.parametrize("answer", [modern, handshake])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_server_that_compresses_its_answers_is_reachable(
    client: httpx2.AsyncClient, answer: Answer, encoding: str
) -> None:
    async def folded(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        return packed(await answer(fake, request, body), encoding)

    found, _ = await _probe_fake(client, folded)
    assert (found.reach, found.detail) == (ProbeResult.OK, "")


async def test_a_small_answer_that_expands_to_a_large_one_is_not_read(client: httpx2.AsyncClient) -> None:
    async def bomb(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        said = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": {"pad": " " * (64 << 20)}})
        return packed(Response(said, media_type="application/json"), "gzip")

    found, _ = await _probe_fake(client, bomb)
    assert found.reach is ProbeResult.UNREACHABLE


async def test_a_server_of_a_version_to_come_is_reachable(client: httpx2.AsyncClient) -> None:
    found, fake = await _probe_fake(client, newer)
    assert found.reach is ProbeResult.OK
    assert len(fake.seen) == 1


async def test_a_handshake_server_gets_initialize_and_its_own_session_back(
    client: httpx2.AsyncClient,
) -> None:  # PI-11
    found, fake = await _probe_fake(
        client, handshake, headers={"Authorization": f"Bearer {SECRET}", "X-A": "b"}
    )
    assert found.reach is ProbeResult.OK
    discover, initialize, delete = fake.seen
    assert (discover.rpc, initialize.rpc, delete.method) == ("server/discover", "initialize", "DELETE")
    assert "mcp-protocol-version" not in initialize.headers
    assert initialize.headers["accept"] == "application/json, text/event-stream"
    assert delete.headers["mcp-protocol-version"] == "2025-11-25"
    assert "mcp-session-id" not in initialize.headers
    for seen in fake.seen:
        assert seen.headers["authorization"] == f"Bearer {SECRET}"
        assert seen.headers["x-a"] == "b"
    assert (fake.opened, fake.sessions) == (1, set())
    assert SECRET not in repr(found)


async def test_no_session_no_delete(client: httpx2.AsyncClient) -> None:  # PI-11
    found, fake = await _probe_fake(client, stateless_handshake)
    assert found.reach is ProbeResult.OK
    assert {seen.method for seen in fake.seen} == {"POST"}


@pytest.mark.slow
async def test_a_hundred_checks_leave_no_session_behind(client: httpx2.AsyncClient) -> None:  # PI-11
    fake, eras = FakeDownstream(handshake), _no_eras()
    async with serving(fake) as origin:
        found = [await probe(_http(origin), client, eras) for _ in range(100)]
    assert {each.reach for each in found} == {ProbeResult.OK}
    assert (fake.opened, fake.sessions) == (100, set())


def _no_eras() -> Eras:
    return {}


async def test_the_era_is_remembered_and_given_up_when_the_server_changes(
    client: httpx2.AsyncClient,
) -> None:  # PI-13
    fake, eras = FakeDownstream(handshake), _no_eras()
    async with serving(fake) as origin:
        config = _http(origin)
        await probe(config, client, eras)
        assert eras == {config.url: "handshake"}
        fake.seen.clear()
        await probe(config, client, eras)
        assert [seen.rpc for seen in fake.seen] == ["initialize", ""]
        fake.seen.clear()
        fake.answer = modern
        assert (await probe(config, client, eras)).reach is ProbeResult.OK
        assert [seen.rpc for seen in fake.seen] == ["initialize", "server/discover"]
        assert eras == {config.url: "modern"}
        fake.seen.clear()
        fake.answer = handshake
        assert (await probe(config, client, eras)).reach is ProbeResult.OK
        assert eras == {config.url: "handshake"}
        fake.answer = status(500)
        await probe(config, client, eras)
        assert eras == {}


async def test_a_real_server_of_both_eras_is_reached_and_keeps_no_session(client: httpx2.AsyncClient) -> None:
    from fastmcp import FastMCP

    app = FastMCP("both").http_app(path="/mcp")
    eras = _no_eras()
    async with app.lifespan(app), serving(app) as origin:
        assert (await probe(_http(origin), client, eras)).reach is ProbeResult.OK
        assert list(eras.values()) == ["modern"]
        eras[f"{origin}/mcp"] = "handshake"
        assert (await probe(_http(origin), client, eras)).reach is ProbeResult.OK
        assert list(eras.values()) == ["handshake"]


@pytest.mark.parametrize("code", [400, 404, 500, 503])
async def test_an_http_error_is_unreachable(client: httpx2.AsyncClient, code: int) -> None:  # PI-12
    found, fake = await _probe_fake(client, status(code))
    assert (found.reach, found.detail) == (ProbeResult.UNREACHABLE, f"HTTP {code}")
    assert [seen.rpc for seen in fake.seen] == ["server/discover", "initialize"]


@pytest.mark.parametrize("code", [401, 403])
async def test_a_server_that_wants_credentials_is_told_apart(
    client: httpx2.AsyncClient, code: int
) -> None:  # PI-12
    oauth = json.dumps({"error": "invalid_token", "error_description": "no"}).encode()
    found, fake = await _probe_fake(client, status(code, oauth))
    assert (found.reach, found.detail) == (ProbeResult.AUTH_REQUIRED, f"HTTP {code}")
    assert len(fake.seen) == 1


async def test_a_server_that_waits_for_the_callers_token_is_as_it_should_be(
    client: httpx2.AsyncClient,
) -> None:
    found, fake = await _probe_fake(client, status(401), forward_inbound_auth=True)
    assert (found.reach, found.detail) == (ProbeResult.OK, "asks for the caller's token")
    assert "authorization" not in fake.seen[0].headers
    found, _ = await _probe_fake(client, status(403), forward_inbound_auth=True)
    assert found.reach is ProbeResult.AUTH_REQUIRED
    configured = {"authorization": f"Bearer {SECRET}"}
    found, _ = await _probe_fake(client, status(401), forward_inbound_auth=True, headers=configured)
    assert found.reach is ProbeResult.AUTH_REQUIRED


async def test_a_closed_port_is_unreachable(client: httpx2.AsyncClient) -> None:  # PI-12
    async with serving(FakeDownstream(modern)) as origin:
        pass
    found = await probe(_http(origin), client, {})
    assert found.reach is ProbeResult.UNREACHABLE
    assert found.detail.startswith("cannot connect")


async def test_a_black_hole_is_unreachable_after_one_deadline(client: httpx2.AsyncClient) -> None:  # PI-12
    async with talking(b"") as origin:
        found = await probe(_http(origin), client, {}, timeout_s=0.3)
    assert (found.reach, found.detail) == (ProbeResult.UNREACHABLE, "no answer within 0.3 s")


async def test_one_deadline_covers_both_eras(client: httpx2.AsyncClient) -> None:  # PI-13
    # The first refusal comes in time, the second would not. On a busy machine the first may take its time.
    calls = 0

    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        nonlocal calls
        calls += 1
        if calls == 2:
            while (await request.receive())["type"] != "http.disconnect":
                pass
        return Response(status_code=400)

    async with serving(FakeDownstream(answer)) as origin:
        for limit in (0.5, 2.0, 30.0):
            calls = 0
            found = await probe(_http(origin), client, {}, timeout_s=limit)
            if calls == 2:
                break
    assert (calls, found.detail) == (2, f"no answer within {limit:g} s")


@pytest.mark.parametrize(
    "first",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{\x1b[2J",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: \xff\xfe\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b"[" * 100_000,
        b"",
    ],
)
async def test_garbage_is_unreachable(client: httpx2.AsyncClient, first: bytes) -> None:  # PI-12
    async with talking(first, hang_up=True) as origin:
        found = await probe(_http(origin), client, {})
    assert found.reach is ProbeResult.UNREACHABLE
    assert "\x1b" not in found.detail
    assert found.detail


async def test_an_endless_answer_is_not_read_to_its_end(client: httpx2.AsyncClient) -> None:
    taken, limit = 0, 1 << 26

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            while taken < limit:
                writer.write(b"x" * (1 << 16))
                await writer.drain()
                taken += 1 << 16
        writer.close()

    async with await asyncio.start_server(endless, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await probe(_http(f"http://127.0.0.1:{port}"), client, {})
    assert found.detail == "HTTP 200, but not as an MCP server answers"
    # 1 MiB is read for each era; the rest is what buffers hold on the way.
    assert taken < limit


async def test_notifications_before_the_answer_are_skipped(client: httpx2.AsyncClient) -> None:
    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        result = {"jsonrpc": "2.0", "id": body["id"], "result": {"supportedVersions": ["2026-07-28"]}}
        return event_stream(request, [note, result], {})

    found, _ = await _probe_fake(client, answer)
    assert found.reach is ProbeResult.OK


async def test_a_session_is_ended_even_when_the_answer_never_comes(
    client: httpx2.AsyncClient,
) -> None:  # PI-11
    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        if request.method == "POST" and body["method"] == "initialize":
            return event_stream(request, [], {"Mcp-Session-Id": fake.open_session()})
        return await handshake(fake, request, body)

    for limit in (0.5, 2.0, 30.0):  # on a busy machine the session may take its time
        fake = FakeDownstream(answer)
        async with serving(fake) as origin:
            found = await probe(_http(origin), client, {}, timeout_s=limit)
        if fake.opened and not fake.sessions:
            break
    assert found.reach is ProbeResult.UNREACHABLE
    assert (fake.opened, fake.sessions) == (1, set())


async def test_credentials_never_follow_a_redirect_to_another_origin(client: httpx2.AsyncClient) -> None:
    other = FakeDownstream(modern)
    async with serving(other) as elsewhere:
        for code in (301, 302, 303, 307, 308):
            headers = {"Authorization": f"Bearer {SECRET}"}
            found, fake = await _probe_fake(client, redirect(code, f"{elsewhere}/mcp"), headers=headers)
            assert found.reach is ProbeResult.UNREACHABLE
            assert "redirects" in found.detail
            assert len(fake.seen) == 1
    assert other.seen == []


async def test_a_redirect_within_the_origin_is_followed(client: httpx2.AsyncClient) -> None:
    fake = FakeDownstream(handshake)
    app = Starlette(routes=[Mount("/mcp", app=fake)])
    async with serving(app) as origin:
        found = await probe(_http(origin, headers={"Authorization": "Bearer x"}), client, {})
    assert found.reach is ProbeResult.OK
    assert {seen.path for seen in fake.seen} == {"/mcp/"}
    assert {seen.headers.get("authorization") for seen in fake.seen} == {"Bearer x"}
    assert fake.sessions == set()


async def test_a_redirect_in_a_circle_ends(client: httpx2.AsyncClient) -> None:
    found, fake = await _probe_fake(client, redirect(307, "/mcp"))
    assert (found.reach, found.detail) == (ProbeResult.UNREACHABLE, "its redirects form a circle")
    assert len(fake.seen) == 4


async def test_cookies_of_one_server_do_not_reach_another(client: httpx2.AsyncClient) -> None:
    async def baker(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        return Response(status_code=400, headers={"set-cookie": f"session={SECRET}; Path=/"})

    await _probe_fake(client, baker)
    _, fake = await _probe_fake(client, modern)
    assert "cookie" not in fake.seen[0].headers


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("http://127.0.0.1:1/mcp", {"X-A": "line\nbreak"}),
        ("http://127.0.0.1:1/mcp", {"X-A": "\u2603"}),
        ("http://[::1/mcp", {}),
        ("http://127.0.0.1:99999/mcp", {}),
        ("http:///mcp", {}),
        ("ftp://127.0.0.1/mcp", {}),
    ],
)
async def test_what_cannot_be_sent_is_unreachable(
    client: httpx2.AsyncClient, url: str, headers: dict[str, str]
) -> None:
    found = await probe(DownstreamConfig("notes", "http", url=url, headers=headers), client, {})
    assert found.reach is ProbeResult.UNREACHABLE
    assert found.detail


async def test_the_target_shows_no_credentials(client: httpx2.AsyncClient) -> None:
    fake = FakeDownstream(modern)
    async with serving(fake) as origin:
        secret_url = origin.replace("://", f"://me:{SECRET}@") + f"/mcp?api_key={SECRET}"
        found = await probe(DownstreamConfig("notes", "http", url=secret_url), client, {})
    assert (found.reach, found.target) == (ProbeResult.OK, f"{origin}/mcp")
    command = DownstreamConfig("tool", "stdio", command=("tool", "--token", f"--api-key={SECRET}"))
    assert SECRET not in repr(await probe(command, client, {}))


async def test_an_event_stream_server_is_reached_by_its_stream(client: httpx2.AsyncClient) -> None:
    async def answer(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        return event_stream(request, [], {})

    for kind, reach in (
        (answer, ProbeResult.OK),
        (status(401), ProbeResult.AUTH_REQUIRED),
        (status(200), ProbeResult.UNREACHABLE),
    ):
        fake = FakeDownstream(kind)
        async with serving(fake) as origin:
            found = await probe(DownstreamConfig("old", "sse", url=f"{origin}/sse"), client, {})
        assert (found.reach, found.transport) == (reach, "http")
        assert [seen.method for seen in fake.seen] == ["GET"]


async def test_a_command_is_reached_when_it_can_be_executed(
    client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for command, reach in (
        ("sh", ProbeResult.OK),
        (sys.executable, ProbeResult.OK),
        ("no-such-command-here", ProbeResult.UNREACHABLE),
        (str(tmp_path / "missing"), ProbeResult.UNREACHABLE),
        (str(plain), ProbeResult.UNREACHABLE),
        (str(folder), ProbeResult.UNREACHABLE),
    ):
        found = await probe(DownstreamConfig("tool", "stdio", command=(command, "-c", "x")), client, {})
        assert (found.reach, found.transport) == (reach, "stdio"), command
        assert bool(found.detail) is (reach is ProbeResult.UNREACHABLE)
    assert not os.access(plain, os.X_OK)


def test_the_limits_are_those_of_the_contract() -> None:  # PI-10
    assert TIMEOUT == 3.0
    assert CACHE_SECONDS <= 10.0


async def test_ten_downstreams_are_probed_at_the_same_time() -> None:  # PI-10
    fakes = [FakeDownstream(slow(0.2, modern), gate=asyncio.Event()) for _ in range(10)]
    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(serving(fake)) for fake in fakes]
        prober = Prober([_http(origin, f"d{number}") for number, origin in enumerate(origins)])
        asking = asyncio.create_task(prober.probe())
        # None of them answers before all ten were asked: one after the other would never end.
        await until(lambda: all(fake.active for fake in fakes))
        for fake in fakes:
            assert fake.gate is not None
            fake.gate.set()
        found = await asking
        await prober.close()
    assert [each.name for each in found] == [f"d{number}" for number in range(10)]
    assert {each.reach for each in found} == {ProbeResult.OK}


async def test_one_that_never_answers_costs_one_deadline_and_is_named() -> None:  # PI-10
    hole = FakeDownstream(modern, gate=asyncio.Event())
    fakes = [FakeDownstream(modern), hole, FakeDownstream(modern)]
    async with AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(serving(fake)) for fake in fakes]
        names = ("first", "black_hole", "last")
        for limit in (0.5, 2.0, 30.0):  # on a busy machine the others may take their time
            hole.seen.clear()
            prober = Prober([_http(*pair) for pair in zip(origins, names, strict=True)], timeout_s=limit)
            found = await prober.probe()
            await prober.close()
            if hole.seen and found[0].reach is found[2].reach is ProbeResult.OK:
                break
        health = health_of(AgentState.READY, found)
        assert (health.status, health.message) == (HealthStatus.DEGRADED, "Unreachable: black_hole")
        assert found[1].detail == f"no answer within {limit:g} s"
        # The other era is not tried as well: that would have been a second deadline.
        assert [seen.rpc for seen in hole.seen] == ["server/discover"]
        assert hole.gate is not None
        hole.gate.set()


async def test_callers_share_one_round_and_its_answer() -> None:  # C3
    now = 100.0
    fake = FakeDownstream(modern, gate=asyncio.Event())
    async with serving(fake) as origin:
        prober = Prober([_http(origin)], clock=lambda: now)
        assert [each.reach for each in prober.latest] == [ProbeResult.UNKNOWN]
        asking = [asyncio.create_task(prober.probe()) for _ in range(20)]
        await until(lambda: fake.active)
        asking[0].cancel()  # one caller that goes away does not end the round of the others
        assert fake.gate is not None
        fake.gate.set()
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [prober.latest] * 19
        assert (len(fake.seen), prober.latest[0].reach) == (1, ProbeResult.OK)
        now += CACHE_SECONDS - 0.1
        await prober.probe()
        assert len(fake.seen) == 1
        now += 0.2
        fake.answer = status(503)
        assert (await prober.probe())[0].reach is ProbeResult.UNREACHABLE
        assert len(fake.seen) == 3
        await prober.close()
        now += 60
        assert await prober.probe() == prober.latest


@pytest.mark.slow
async def test_what_is_shown_follows_what_is_found_without_flapping() -> None:
    # PI-12
    now = 100.0
    fake = FakeDownstream(modern)

    async def deaf(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return Response()

    answers: dict[str, Answer] = {"ok": modern, "silent": deaf, "500": status(500), "401": status(401)}
    rounds = [
        # what it does, what who asks is told, what is shown
        ("ok", "ok", "ok"),
        ("silent", "unreachable", "ok"),
        ("ok", "ok", "ok"),
        ("silent", "unreachable", "ok"),
        ("silent", "unreachable", "unreachable"),
        ("ok", "ok", "unreachable"),
        ("silent", "unreachable", "unreachable"),
        ("ok", "ok", "unreachable"),
        ("ok", "ok", "ok"),
        ("500", "unreachable", "unreachable"),
        ("ok", "ok", "unreachable"),
        ("401", "auth required", "auth required"),
        ("silent", "unreachable", "auth required"),
        ("ok", "ok", "auth required"),
        ("ok", "ok", "ok"),
    ]
    async with serving(fake) as origin:
        prober = Prober([_http(origin)], clock=lambda: now)
        for number, (does, found, shown) in enumerate(rounds):
            fake.answer = answers[does]
            prober._timeout_s = 0.5 if does == "silent" else 30  # who answers has the time for it
            now += CACHE_SECONDS + 1
            asked = await prober.probe()
            told = (asked[0].reach, prober.latest[0].reach, prober.unconfirmed)
            assert told == (found, shown, found != shown), number
            # A question within the time of the cache is no round of its own.
            seen = len(fake.seen)
            assert (await prober.probe(), prober.latest[0].reach, len(fake.seen)) == (asked, shown, seen)
        await prober.close()
    now += CACHE_SECONDS + 1
    gone = Prober([_http(origin)], clock=lambda: now)
    assert (await gone.probe())[0].reach is gone.latest[0].reach is ProbeResult.UNREACHABLE
    await gone.close()


async def test_silence_and_broken_connections_may_pass_and_all_else_is_certain(
    client: httpx2.AsyncClient,
) -> None:
    # PI-12
    async with serving(FakeDownstream(status(503))) as origin:
        assert (await look(_http(origin), client, {})).certain
    assert (await look(_http(origin), client, {})).certain  # nobody listens there any more
    async with talking(b"") as origin:
        assert not (await look(_http(origin), client, {}, timeout_s=0.3)).certain
    async with talking(b"", hang_up=True) as origin:
        assert not (await look(_http(origin), client, {})).certain
    for answer in (status(401), modern, status(200, b"<html>")):
        async with serving(FakeDownstream(answer)) as origin:
            assert (await look(_http(origin), client, {})).certain


async def test_a_downstream_that_never_answered_is_unreachable_with_the_first_look() -> None:
    # PI-10, PI-12
    async with talking(b"") as origin:
        prober = Prober([_http(origin)], timeout_s=0.3)
        assert (await prober.probe())[0].reach is prober.latest[0].reach is ProbeResult.UNREACHABLE
        await prober.close()


async def test_a_refused_connection_counts_at_once() -> None:
    # PI-12
    async with serving(FakeDownstream(modern)) as origin:
        prober = Prober([_http(origin)])
        assert (await prober.probe())[0].reach is ProbeResult.OK
    assert (await prober.probe(fresh=True))[0].reach is prober.latest[0].reach is ProbeResult.UNREACHABLE
    await prober.close()


async def test_who_asks_waits_no_longer_than_a_round_even_when_the_round_is_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # PI-10
    release = threading.Event()

    def slow_certificates() -> bool:
        release.wait(30)
        return True

    monkeypatch.setattr("pallas.health.probe.prober.certificates", slow_certificates)
    async with serving(FakeDownstream(modern)) as origin:
        prober = Prober([_http(origin)], timeout_s=1.0)
        try:
            async with asyncio.timeout(60):
                assert (await prober.probe())[0].reach is ProbeResult.UNKNOWN
        finally:
            release.set()
        await until(lambda: prober.latest[0].reach is ProbeResult.OK)
        await prober.close()


async def test_a_command_that_did_not_start_is_unreachable_though_it_could_be_executed() -> None:
    prober = Prober([DownstreamConfig("tool", "stdio", command=("sh",))])
    assert (await prober.probe())[0].reach is ProbeResult.OK
    assert (await prober.probe(("tool", "other")))[0].reach is ProbeResult.UNREACHABLE
    assert prober.latest[0].reach is ProbeResult.UNREACHABLE
    assert (await prober.probe())[0].reach is ProbeResult.OK
    await prober.close()


async def test_closing_ends_a_round_that_runs() -> None:
    async with talking(b"") as origin:
        prober = Prober([_http(origin)])
        asking = asyncio.create_task(prober.probe())

        def probes() -> list[asyncio.Task[Any]]:
            return [task for task in asyncio.all_tasks() if task.get_name().startswith("probe")]

        begun = await until(probes)
        await prober.close()
        assert await asking == prober.latest
    assert all(task.done() for task in begun)


def _found(name: str, reach: ProbeResult) -> Downstream:
    return Downstream(name, "http", "http://x/mcp", reach)


def test_all_causes_stand_in_one_line() -> None:  # PR-22, PI-12
    found = [
        _found("neo4j", ProbeResult.UNREACHABLE),
        _found("argos", ProbeResult.OK),
        _found("vault", ProbeResult.AUTH_REQUIRED),
        _found("gitea", ProbeResult.UNREACHABLE),
        _found("later", ProbeResult.UNKNOWN),
    ]
    health = health_of(AgentState.READY, found, "openai: model 'bad-model' not found")
    assert health.status is HealthStatus.DEGRADED
    assert health.message == (
        "Unreachable: neo4j, gitea; Auth required: vault; LLM: openai: model 'bad-model' not found"
    )
    assert health_of(AgentState.READY, found[1:2]).status is HealthStatus.OK
    only_model = health_of(AgentState.READY, (), "openai: model 'bad-model' not found")  # PR-21
    assert only_model.message == "LLM: openai: model 'bad-model' not found"


@pytest.mark.parametrize("state", list(AgentState))
def test_an_agent_that_cannot_answer_says_error_and_why(state: AgentState) -> None:  # PI-12
    health = health_of(state, (), "", "agents.yaml:3: module x: boom" if state is AgentState.ERROR else "")
    body = json.loads(health_text(health))
    if state is AgentState.READY:
        assert (body["status"], "message" in body) == ("ok", False)
    else:
        assert body["status"] == "error"
        assert body["message"]
    assert ("boom" in health.message) is (state is AgentState.ERROR)
