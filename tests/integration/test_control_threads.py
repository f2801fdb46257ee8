"""Durable threads over the control API, and through an attached workbench's port."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.control import FULL, READ, Served, serving
from support.fake_fleet import NOON, FakeFleet
from support.waiting import until

from pallas.model import Fault, FaultType, Image, MessageRecord, ThreadRecord, ToolCall
from pallas.surfaces.control import operation_routes
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource

HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07\u202egnp.exe"


def record(number: int, **more: Any) -> ThreadRecord:
    given = {"agent": "research", "owner": "anonymous", "title": f"thread {number}", "origin": "mcp", **more}
    return ThreadRecord(f"conv-{number}", created_at=NOON, last_turn_at=NOON + number, **given)


def row(thread: str, index: int, content: str, **more: Any) -> MessageRecord:
    given = {"role": "user", "status": "complete", "created_at": NOON, **more}
    return MessageRecord(f"m{index}", thread, index, content=content, **given)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    fleet = FakeFleet()
    call = ToolCall("c1", "docs__search", {"query": "invoices", "limit": 3})
    fleet.kept.add(record(1), row("conv-1", 0, "first"))
    fleet.kept.add(
        record(2, owner="token:ci", title=f"second {HOSTILE}"),
        row("conv-2", 0, f"what? {HOSTILE}", images=(Image("aGVsbG8=", "image/png"),)),
        row("conv-2", 1, "", role="assistant", tool_calls=(call,)),
        row("conv-2", 2, "found", role="tool", tool_call_id="c1"),
        row("conv-2", 3, "", role="assistant", status="error", reason="the fleet was killed"),
    )
    fleet.kept.handles["mine/own handle?"] = "conv-1"
    async with serving(fleet) as one:
        yield one


@pytest.fixture
async def remote(served: Served) -> AsyncIterator[RemoteFleet]:
    fleet = RemoteFleet(served.url, TokenSource(served.url, FULL))
    fleet.start()
    await until(lambda: fleet.can_control)
    yield fleet
    fleet.stop()


async def test_threads_come_in_pages_the_one_used_last_first(served: Served, remote: RemoteFleet) -> None:
    first = await remote.threads(limit=1)
    assert [one.id for one in first.items] == ["conv-2"]
    assert first.items[0].owner == "token:ci"
    assert first.next
    rest = await remote.threads(limit=1, cursor=first.next)
    assert rest.items == (served.fleet.kept.records["conv-1"],)
    assert rest.next == ""
    assert (await remote.threads("engineering")).items == ()


async def test_threads_are_searched(served: Served, remote: RemoteFleet) -> None:
    (hit,) = (await remote.threads(search="what?")).items
    assert (hit.id, hit.snippet[:5]) == ("conv-2", "what?")
    assert "\x1b" not in hit.snippet
    with pytest.raises(Fault) as caught:
        await remote.threads(search="x" * 10_000)
    assert "200 characters" in caught.value.message
    assert served.fleet.kept.searches == ["what?"]


async def test_rows_come_as_they_were_written_and_cannot_drive_a_terminal(remote: RemoteFleet) -> None:
    page = await remote.thread_messages("conv-2", newest_first=True, limit=3)
    assert [one.turn_index for one in page.items] == [3, 2, 1]
    assert page.items[0].reason == "the fleet was killed"
    assert page.items[2].tool_calls == (ToolCall("c1", "docs__search", {"query": "invoices", "limit": 3}),)
    (oldest,) = (await remote.thread_messages("conv-2", newest_first=True, cursor=page.next)).items
    assert oldest.images == (Image("aGVsbG8=", "image/png"),)
    assert "\x1b" not in oldest.content
    assert not set("\x1b\x07") & set(oldest.content)
    assert "\x1b" not in (await remote.thread("research", "conv-2")).title


async def test_a_thread_is_found_by_its_id_and_by_its_callers_handle(remote: RemoteFleet) -> None:
    for which in ("conv-1", "mine/own handle?"):
        assert (await remote.thread("research", which)).id == "conv-1"
    with pytest.raises(Fault) as refused:
        await remote.thread("research", "conv-nine")
    assert refused.value.type is FaultType.UPSTREAM
    assert refused.value.data["reason"] == "not_found"


async def test_a_thread_is_renamed_and_deleted(
    served: Served, remote: RemoteFleet, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert (await remote.rename_thread("conv-1", "invoices of May")).title == "invoices of May"
        await remote.delete_thread("conv-1")
    assert list(served.fleet.kept.records) == ["conv-2"]
    told = [each.getMessage() for each in caplog.records if getattr(each, "audit", "") == "accepted"]
    assert any("rename thread conv-1" in each for each in told)
    assert any("delete thread conv-1" in each for each in told)
    with pytest.raises(Fault, match="no such thread"):
        await remote.thread_messages("conv-1")


async def test_parameters_are_saved_as_the_agents_own(served: Served, remote: RemoteFleet) -> None:
    assert "temperature saved" in await remote.save_params("research", {"temperature": 0.2})
    assert served.fleet.kept.saved == [("research", {"temperature": 0.2})]
    with pytest.raises(Fault, match="no such agent"):
        await remote.save_params("nobody", {"temperature": 0.2})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/threads"),
        ("GET", "/threads/conv-1/messages"),
        ("GET", "/agents/research/thread?which=conv-1"),
        ("POST", "/threads/conv-1/rename"),
        ("DELETE", "/threads/conv-1"),
        ("POST", "/agents/research/params"),
    ],
)
async def test_who_may_only_look_sees_no_conversation(served: Served, method: str, path: str) -> None:
    async with served.client(READ) as http:
        answer = await http.request(method, path)
        assert answer.status_code == 403
        assert "read-only" in answer.json()["error"]
    async with served.client(None) as http:
        assert (await http.request(method, path)).status_code == 401
    if method == "GET":
        served.fleet.can_control = False
        async with served.client(FULL) as http:
            assert (await http.request(method, path)).status_code == 403
    assert len(served.fleet.kept.records) == 2


async def test_what_is_wrong_with_a_request_is_told(served: Served) -> None:
    async with served.client() as http:
        assert (await http.get("/threads?limit=201")).status_code == 400
        assert (await http.get("/agents/research/thread")).status_code == 400
        assert (await http.get("/threads/conv-9/messages")).status_code == 404
        answer = await http.post("/threads/conv-1/rename", json={"title": 5})
        assert answer.status_code == 400
        assert "title" in answer.json()["error"]


async def test_a_page_has_no_more_pictures_than_an_answer_takes(
    served: Served, remote: RemoteFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operation_routes, "MAX_PICTURES", 10)
    images = tuple(Image("aGVsbG8=", "image/png") for _ in range(2))
    served.fleet.kept.add(record(3), row("conv-3", 0, "look", images=images))
    (one,) = (await remote.thread_messages("conv-3")).items
    assert [image.data for image in one.images] == ["aGVsbG8=", ""]


async def test_a_fleet_that_keeps_nothing_says_so(served: Served, remote: RemoteFleet) -> None:
    served.fleet.kept.problem = Fault(FaultType.CONFIG, "this fleet keeps nothing: no database")
    with pytest.raises(Fault, match="keeps nothing"):
        await remote.threads()
