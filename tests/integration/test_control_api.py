"""The control API over real HTTP: what it gives, and what it bears."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.control import FULL, READ, Served, messages, serving
from support.fake_fleet import FakeFleet, desk
from support.waiting import until

from pallas.model import (
    AgentDetail,
    Event,
    Exchange,
    FaultType,
    FleetSnapshot,
    Notice,
    RunStarted,
    TextDelta,
    ToolOutcome,
    codec,
)
from pallas.model.redaction import redact_text
from pallas.surfaces.control import BASE, operation_routes
from pallas.surfaces.control import control_api as control_api
from pallas.surfaces.control.event_stream import MAX_DELTA, coalesced


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(log=tmp_path / "pallas.log", boot="b1") as one:
        yield one


def notice(text: str) -> Notice:
    return Notice(level="info", text=text)


class Reader:
    """Follows a stream and keeps what came."""

    def __init__(self, served: Served, last: str = "", since: int | None = None) -> None:
        self._served, self._last, self._since = served, last, since
        self.said: list[tuple[str, str, Any]] = []

    async def __aenter__(self) -> "Reader":
        self._http = self._served.client(**({"last-event-id": self._last} if self._last else {}))
        query = f"?since={self._since}" if self._since is not None else ""
        self._answer = await self._http.send(self._http.build_request("GET", f"/events{query}"), stream=True)
        assert self._answer.status_code == 200, await self._answer.aread()
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})
        await self._answer.aclose()
        await self._http.aclose()

    async def _follow(self) -> None:
        async for message in messages(self._answer):
            self.said.append(message)

    @property
    def over(self) -> bool:
        return self._task.done()

    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.said]

    def events(self) -> list[Event]:
        found = [
            codec.decode_event(each)
            for kind, _, body in self.said
            if kind == "events"
            for each in body["events"]
        ]
        return [event for event in found if event is not None]

    def texts(self) -> list[str]:
        return [getattr(event, "text", "") for event in self.events()]

    def dropped(self) -> int:
        return sum(body["dropped"] for kind, _, body in self.said if kind == "events")


async def test_the_snapshot_comes_with_what_the_token_allows(served: Served) -> None:
    for token, access in ((FULL, "full"), (READ, "read")):
        async with served.client(token) as http:
            answer = await http.get("/snapshot")
            assert answer.status_code == 200
            body = answer.json()
            assert (body["api"], body["boot"], body["access"]) == (1, "b1", access)
            assert codec.decode(FleetSnapshot, body["snapshot"]) == desk()
            assert answer.headers["cache-control"] == "no-store"
    served.fleet.can_control = False
    async with served.client(FULL) as http:
        assert (await http.get("/snapshot")).json()["access"] == "read"


async def test_events_come_as_they_happen_with_ids_and_the_snapshot_follows(served: Served) -> None:
    served.fleet.say(notice("before"))
    async with Reader(served) as reader:
        await until(lambda: reader.texts() == ["before"])
        await until(lambda: "snapshot" in reader.kinds())
        assert reader.kinds()[:2] == ["hello", "events"]
        served.fleet.say(notice("after"))
        served.fleet.change("vision", runs_total=7)
        await until(lambda: reader.texts() == ["before", "after"])
        await until(lambda: reader.kinds().count("snapshot") == 2)
        last = [body for kind, _, body in reader.said if kind == "snapshot"][-1]
        assert codec.decode(FleetSnapshot, last) == served.fleet.current
        assert [name for kind, name, _ in reader.said if kind == "events"] == ["b1:1", "b1:2"]


async def test_who_comes_back_goes_on_where_they_were(served: Served) -> None:
    served.fleet.say(*(notice(str(number)) for number in range(5)))
    for last, texts in (("b1:3", ["3", "4"]), ("b1:0", list("01234")), ("another:3", list("01234"))):
        async with Reader(served, last) as reader:
            await until(lambda: "snapshot" in reader.kinds())
            assert reader.texts() == texts
    async with Reader(served, since=4) as reader:
        await until(lambda: reader.texts() == ["4"])


@pytest.mark.parametrize("last", ["x", "b1:", "b1:-1", "b1:9999999999999999999", "b1:1e3"])
async def test_an_id_that_is_none_is_refused(served: Served, last: str) -> None:
    async with served.client() as http:
        answer = await http.get("/events", headers={"last-event-id": last})
        assert answer.status_code == 400
        assert last not in answer.text.replace("b1", "")


async def test_what_left_the_ring_unread_is_counted(tmp_path: Path) -> None:
    fleet = FakeFleet()
    from pallas.telemetry.event_hub import EventHub

    fleet.hub = EventHub(10)
    fleet.say(*(notice(str(number)) for number in range(25)))
    async with serving(fleet, boot="b1") as served, Reader(served, "b1:5") as reader:
        await until(lambda: len(reader.texts()) == 10)
        assert reader.dropped() == 10
        assert reader.texts()[0] == "15"


async def test_a_stream_says_that_it_lives(tmp_path: Path) -> None:
    async with (
        serving(heartbeat=0.05) as served,
        served.client() as http,
        http.stream("GET", "/events") as answer,
    ):
        async for line in answer.aiter_lines():
            if line.startswith(": ping"):
                break


async def test_a_reader_who_takes_nothing_holds_nobody_up(served: Served) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    head = f"GET {BASE}/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {FULL}\r\n\r\n"
    writer.write(head.encode())
    await writer.drain()
    await until(lambda: served.api._streams == 1)
    for number in range(30):
        served.fleet.say(*(notice(f"{number}-{index}-" + "x" * 4_000) for index in range(1_000)))
        await asyncio.sleep(0)
    # 120 MB were said; the hub kept its ring, the stream holds one message, and others are answered.
    async with served.client() as http:
        for _ in range(5):
            assert (await http.get("/snapshot")).status_code == 200
    writer.transport.abort()
    await until(lambda: served.api._streams == 0, timeout=30)


async def test_too_many_readers_are_refused_and_places_come_free(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_api, "MAX_STREAMS", 1)
    async with Reader(served) as first:
        await until(lambda: first.kinds())
        async with served.client() as http:
            answer = await http.get("/events")
            assert answer.status_code == 503
            assert "1 readers" in answer.json()["error"]
    await until(lambda: served.api._streams == 0)
    async with Reader(served) as second:
        await until(lambda: second.kinds())


async def test_a_closed_fleet_says_its_last_events_and_goodbye(served: Served) -> None:
    async with Reader(served) as reader:
        await until(lambda: "snapshot" in reader.kinds())
        served.fleet.say(notice("the end"))
        served.api.close()
        await until(lambda: reader.over)
        assert reader.texts() == ["the end"]
        assert reader.kinds()[-1] == "bye"
    async with served.client() as http:
        for path in ("/snapshot", "/events"):
            answer = await http.get(path)
            assert (answer.status_code, answer.json()["error"]) == (503, "the fleet is stopping")


def test_streamed_text_is_put_together_and_nothing_changes_places() -> None:
    def delta(seq: int, run: str, text: str, **more: Any) -> TextDelta:
        return TextDelta(seq=seq, run_id=run, agent="a", text=text, **more)

    events: list[Event] = [
        delta(1, "x", "one "),
        delta(2, "y", "eins "),
        delta(3, "x", "two"),
        RunStarted(seq=4, run_id="z", agent="a"),
        delta(5, "y", "zwei"),
        RunStarted(seq=6, run_id="x", agent="a"),
        delta(7, "x", "three"),
        delta(8, "x", "", rollback=True),
        delta(9, "x", "thinking", reasoning=True),
        delta(10, "x", "four"),
    ]
    shown = [(event.seq, getattr(event, "text", None)) for event in coalesced(events)]
    assert shown == [
        (3, "one two"),
        (4, None),
        (5, "eins zwei"),
        (6, None),
        (7, "three"),
        (8, ""),
        (9, "thinking"),
        (10, "four"),
    ]
    many = [delta(number, "x", "x" * 1_000) for number in range(1, 101)]
    joined = coalesced(many)
    assert all(len(event.text) <= MAX_DELTA for event in joined if isinstance(event, TextDelta))
    assert sum(len(event.text) for event in joined if isinstance(event, TextDelta)) == 100_000
    assert len(joined) < 10


# --- the log


async def _log(http: httpx2.AsyncClient) -> list[dict[str, Any]]:
    return list((await http.get("/log")).json()["files"])


async def test_the_log_is_read_by_ranges_over_rotation_and_truncation(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "pallas.log"
    path.write_bytes(b"one\ntwo\n")
    async with served.client(READ) as http:
        (file,) = await _log(http)
        assert file["size"] == 8
        answer = await http.get(f"/log/{file['id']}?offset=4&limit=2")
        assert (answer.content, answer.headers["pallas-log-size"]) == (b"tw", "8")
        assert answer.headers["pallas-log-newer"] == ""
        path.rename(tmp_path / "pallas.log.1")
        path.write_bytes(b"three\n")
        newest, older = await _log(http)
        assert older["id"] == file["id"]
        answer = await http.get(f"/log/{file['id']}?offset=8")
        assert (answer.content, answer.headers["pallas-log-newer"]) == (b"", newest["id"])
        path.write_bytes(b"")
        answer = await http.get(f"/log/{newest['id']}?offset=6")
        assert (answer.content, answer.headers["pallas-log-size"]) == (b"", "0")
        (tmp_path / "pallas.log.1").unlink()
        assert (await http.get(f"/log/{file['id']}")).status_code == 410


async def test_no_other_file_can_be_named(served: Served, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "pallas.log").write_text("line\n")
    (tmp_path / "pallas.log.2").mkdir()
    os.mkfifo(tmp_path / "pallas.log.3")
    state = (tmp_path / "secret").stat()
    async with served.client() as http:
        assert len(await _log(http)) == 1
        for name in (
            "secret", "..%2Fsecret", "%2Fetc%2Fpasswd", f"{state.st_dev:x}-{state.st_ino:x}", "pallas.log",
        ):  # fmt: skip
            answer = await http.get(f"/log/{name}")
            assert answer.status_code in (404, 410), name
            assert "secret" not in answer.text


@pytest.mark.parametrize("query", ["offset=-1", "offset=x", "limit=99999999", "offset=1e3", "offset=٣"])
async def test_a_range_that_is_none_is_refused(served: Served, tmp_path: Path, query: str) -> None:
    (tmp_path / "pallas.log").write_text("line\n")
    async with served.client() as http:
        (file,) = await _log(http)
        assert (await http.get(f"/log/{file['id']}?{query}")).status_code == 400


# --- looking things up, and changing them


async def test_what_is_looked_up_comes_as_the_fleet_gives_it(served: Served) -> None:
    detail = AgentDetail("research", source="agents.yaml:3", instruction="Search.\nWell.")
    wire = (Exchange("r1", 1.0, "inbound", "workbench", "tools/call", request="{}"),)
    served.fleet.details["research"] = detail
    served.fleet.wire["r1"] = wire
    async with served.client(READ) as http:
        assert codec.decode(AgentDetail, (await http.get("/agents/research")).json()) == detail
        assert (await http.get("/runs/r1/exchanges")).status_code == 403
    async with served.client() as http:
        found = (await http.get("/runs/r1/exchanges")).json()
        assert codec.decode(tuple[Exchange, ...], found) == wire
        assert (await http.get("/runs/gone/exchanges")).json() == []
        answer = await http.get("/agents/nobody")
        assert answer.status_code == 404
        assert "concierge, research" in answer.json()["error"]
        assert "nobody" not in answer.text


async def test_a_fault_of_the_fleet_arrives_as_that_fault(served: Served) -> None:
    async with served.client() as http:
        answer = await http.get("/agents/vision")  # nothing is known of it here
        assert answer.status_code == 502
        fault = codec.fault_of(answer.json(), "")
        assert (fault.type, fault.message) == (FaultType.UPSTREAM, "Agent not found: vision")


async def test_runs_are_cancelled_and_agents_controlled(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pallas"):
        async with served.client() as http:
            assert (await http.post("/runs/r1/cancel")).status_code == 202
            for verb in ("start", "stop", "restart", "reload"):
                assert (await http.post(f"/agents/vision/{verb}")).status_code == 202
            answer = await http.post("/agents/vision/explode")
            assert answer.status_code == 404
            assert "start, stop, restart, reload" in answer.json()["error"]
            assert (await http.get("/agents/vision/stop")).status_code == 405
    assert served.fleet.cancelled == ["r1"]
    assert served.fleet.controlled == [("vision", verb) for verb in ("start", "stop", "restart", "reload")]
    said = [record.getMessage() for record in caplog.records if getattr(record, "audit", "") == "accepted"]
    assert len(said) == 5
    assert all("from 127.0.0.1" in line and FULL not in line for line in said)
    assert "cancel run r1" in said[0]


async def test_a_tool_is_called_by_hand_and_its_bearer_is_masked(served: Served) -> None:
    bearer = "someone-elses-bearer-1234"
    masked: list[str] = []

    async def call_tool(
        agent: str, server: str, tool: str, arguments: Any, bearer: str | None = None
    ) -> ToolOutcome:
        masked.append(redact_text(f"sent {bearer}"))
        return ToolOutcome(ok=True, content='{"n": 1}', seconds=0.5, texts=(f"{agent}/{server}/{tool}",))

    served.fleet.call_tool = call_tool  # type: ignore[method-assign]
    body = {"server": "docs", "tool": "search", "arguments": {"q": "x"}, "bearer": bearer}
    async with served.client() as http:
        answer = await http.post("/agents/research/tools/call", json=body)
        outcome = codec.decode(ToolOutcome, answer.json())
    assert (outcome.ok, outcome.texts) == (True, ("research/docs/search",))
    assert masked == ["sent [redacted]"]
    assert redact_text(bearer) == bearer  # forgotten again


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not what call_tool takes"),
        (b"[]", 400, "not what call_tool takes"),
        (b'{"tool": ""}', 400, "tool:"),
        (b'{"tool": "x", "arguments": []}', 400, "arguments:"),
        (b'{"tool": "x", "path": "/etc"}', 400, "path:"),
        (b'{"tool": "x", "bearer": 7}', 400, "bearer:"),
        (b'{"tool": "' + b"x" * 300 + b'"}', 400, "tool:"),
        (b'{"tool": "x", "arguments": {"a": "' + b"x" * 1_100_000 + b'"}}', 413, "1024 KiB"),
    ],
    ids=lambda value: str(value)[:24],
)
async def test_a_body_that_is_no_call_is_refused_in_words(
    served: Served, body: bytes, status: int, says: str
) -> None:
    async with served.client() as http:
        answer = await http.post("/agents/research/tools/call", content=body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert "/etc" not in answer.text
    assert served.fleet.called == []


async def test_a_call_ends_with_who_asked_for_it(served: Served) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def call_tool(*_: Any) -> ToolOutcome:
        began.set()
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()
        raise AssertionError("unreachable")

    served.fleet.call_tool = call_tool  # type: ignore[method-assign]
    async with served.client() as http:
        asking = asyncio.create_task(http.post("/agents/research/tools/call", json={"tool": "x"}))
        async with asyncio.timeout(60):
            await began.wait()
        asking.cancel()
        await asyncio.wait({asking})
    async with asyncio.timeout(60):
        await ended.wait()


async def test_a_lookup_that_takes_too_long_is_a_timeout(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_routes, "MARGIN_S", -29.99)

    async def describe(agent: str) -> AgentDetail:
        await asyncio.sleep(600)
        raise AssertionError("unreachable")

    served.fleet.describe = describe  # type: ignore[method-assign]
    async with served.client() as http:
        answer = await http.get("/agents/research")
    assert answer.status_code == 504
    assert answer.json()["data"]["type"] == "TIMEOUT"


async def test_what_breaks_inside_is_told_without_its_text(served: Served) -> None:
    async def describe(agent: str) -> AgentDetail:
        raise RuntimeError("the password is hunter2")

    served.fleet.describe = describe  # type: ignore[method-assign]
    async with served.client() as http:
        answer = await http.get("/agents/research")
    assert answer.status_code == 500
    assert "hunter2" not in answer.text


async def test_too_much_work_at_once_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_routes, "MAX_WAITING", 1)
    go = asyncio.Event()

    async def describe(agent: str) -> AgentDetail:
        await go.wait()
        return AgentDetail(agent)

    served.fleet.describe = describe  # type: ignore[method-assign]
    async with served.client() as http:
        first = asyncio.create_task(http.get("/agents/research"))
        await until(lambda: served.api.operations.waiting == 1)
        assert (await http.get("/agents/research")).status_code == 503
        go.set()
        assert (await first).status_code == 200


async def test_unknown_paths_and_torn_requests_are_borne(served: Served) -> None:
    async with served.client() as http:
        for path in ("/", "/nothing", "/agents", "/threads/x/y"):
            assert (await http.get(path)).status_code == 404, path
    for request in (b"GET", b"POST /api/v1/fleet/agents/research/tools/call HTTP/1.1\r\nhost: 127.0.0.1\r\n"):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request)
        await writer.drain()
        writer.transport.abort()
    async with served.client() as http:
        assert (await http.get("/snapshot")).status_code == 200


@pytest.mark.parametrize("number", ["x", "0", "-1", "1.5", "9" * 30])
async def test_a_number_in_a_path_that_is_none_is_refused(served: Served, number: str) -> None:
    async with served.client() as http:
        answer = await http.get(f"/runs/r1/steps/{number}")
    assert answer.status_code == 400
    assert answer.json()["error"] == "number must be a number from 1 to 1000000000"
