"""A trace goes through agents on ports of their own: each run knows the call that asked for it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.live import ERAS, agent_module, ask, client, module_fleet
from support.offline import offline_project

from pallas.fleet.fleet import Fleet
from pallas.model import RunStarted, ToolEvent
from pallas.model.fingerprint import fingerprint
from pallas.telemetry.log.json_lines import JsonLines
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed
from pallas_tui.runs.run_tree import HEAD, rows_of

# The agents say what to call: concierge -> research (and the handshake-era way) -> echo over stdio.
SCRIPT = """
rules:
  - when: {last: user, system: concierge, text: old}
    call: [{tool: elder_research__send_message, arguments: {message: "look it up"}}]
  - when: {last: user, system: concierge, text: both}
    call:
      - {tool: research__send_message, arguments: {message: "look it up"}}
      - {tool: research__send_message, arguments: {message: "look it up too"}}
  - when: {last: user, system: concierge}
    call: [{tool: research__send_message, arguments: {message: "look it up"}}]
  - when: {last: user, system: research}
    call:
      - {tool: archive__send_message, arguments: {message: "deep"}}
      - {tool: meta__meta, arguments: {}}
  - when: {last: user, system: archive}
    say: "kept"
  - when: {last: tool}
    say: "{{ result }}"
"""
META = '''
import json
from stdio_server import StdioServer

server = StdioServer("meta")

@server.tool()
def meta() -> str:
    """What came along as metadata."""
    found = server.meta
    return "META" + json.dumps({key: found[key] for key in found if "trace" in key or key == "baggage"})

server.run()
'''
TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"

pytestmark = pytest.mark.asyncio(loop_scope="module")
both_eras = pytest.mark.parametrize("era", ERAS)


@module_fleet()
def fleet(folder: Path) -> Path:
    return offline_project(
        folder,
        {
            "concierge": agent_module("concierge", ("research", "elder_research")),
            "research": agent_module("research", ("archive", "meta")),
            "archive": None,
        },
        SCRIPT,
        peers=("research", "archive"),
        elders=("research",),
        keys={"concierge": {"depends_on": ["research"]}, "research": {"depends_on": ["archive"]}},
        files={"meta_server.py": META},
        config={"mcp": {"servers": {"meta": {"command": "python", "args": ["meta_server.py"]}}}},
    )


def said(fleet: Fleet, seq: int) -> tuple[list[RunStarted], list[ToolEvent]]:
    """The runs and calls that began after ``seq``."""
    events = fleet.hub.since(seq, 20_000).events
    calls = [each for each in events if isinstance(each, ToolEvent) and not each.nested]
    return [each for each in events if isinstance(each, RunStarted)], calls


def started(calls: list[ToolEvent], agent: str, server: str) -> list[ToolEvent]:
    return [each for each in calls if (each.agent, each.server, each.phase) == (agent, server, "started")]


@both_eras
@pytest.mark.parametrize("downstream", ["research", "elder_research"])
async def test_a_run_of_another_agent_is_joined_to_the_call_that_asked_for_it(
    fleet: Fleet, era: str, downstream: str
) -> None:
    seq = fleet.hub.seq
    async with client(fleet, "concierge", era=era) as connected:
        answer = await ask(connected, "old" if downstream == "elder_research" else "new")
    runs, calls = said(fleet, seq)
    top, middle, low = runs
    assert [each.agent for each in runs] == ["concierge", "research", "archive"]
    assert len({each.trace_id for each in runs}) == 1
    assert len({each.span_id for each in runs}) == 3
    assert top.parent_span == ""
    (to_research,) = started(calls, "concierge", downstream)
    (to_archive,) = started(calls, "research", "archive")
    assert middle.parent_span == to_research.span_id
    assert low.parent_span == to_archive.span_id
    # A stdio server, two ports further down, is told the same trace and the call's own span.
    (to_meta,) = started(calls, "research", "meta")
    assert _meta_in(answer)["traceparent"] == f"00-{top.trace_id}-{to_meta.span_id}-01"
    for call in (to_research, to_archive, to_meta):
        (end,) = [each for each in calls if each.call_id == call.call_id and each.phase != "started"]
        assert end.phase == "completed"
        assert end.span_id == call.span_id


async def test_two_calls_at_once_to_one_agent_have_a_span_each(fleet: Fleet) -> None:
    seq = fleet.hub.seq
    async with client(fleet, "concierge") as connected:
        await ask(connected, "both")
    runs, calls = said(fleet, seq)
    asked = {each.span_id for each in started(calls, "concierge", "research")}
    joined = {each.parent_span: each.preview for each in runs if each.agent == "research"}
    assert len(asked) == 2
    assert set(joined) == asked
    assert set(joined.values()) == {"look it up", "look it up too"}


@pytest.mark.slow
@both_eras
async def test_a_foreign_callers_trace_goes_on_with_its_state_and_baggage(fleet: Fleet, era: str) -> None:
    seq = fleet.hub.seq
    meta: dict[str, Any] = {"traceparent": PARENT, "tracestate": "vendor=1", "baggage": "tenant=blue"}
    async with client(fleet, "concierge", era=era, bearer="token-of-a-caller") as connected:
        result = await connected.call_tool("send_message", {"message": "hello"}, meta=meta)  # type: ignore[arg-type]
    runs, _ = said(fleet, seq)
    assert {each.trace_id for each in runs} == {TRACE}
    assert runs[0].parent_span == SPAN
    assert runs[0].span_id != SPAN
    assert runs[0].principal == fingerprint("token-of-a-caller")
    assert runs[0].caller == "mcp"
    assert (runs[1].caller, runs[1].principal) == ("pallas", "")
    sent = _meta_in(getattr(result.content[0], "text", ""))
    assert sent["tracestate"] == "vendor=1"
    assert sent["baggage"] == "tenant=blue"


@both_eras
async def test_without_metadata_the_http_header_counts_and_malformed_ones_count_as_none(
    fleet: Fleet, era: str
) -> None:
    url = next(each.url for each in fleet.agents if each.name == "archive")

    async def run(header: str, meta: dict[str, Any] | None) -> RunStarted:
        seq = fleet.hub.seq
        async with (
            create_mcp_http_client(headers={"traceparent": header}) as http,
            Client(streamable_http_client(url, http_client=http), mode=era) as connected,
        ):
            result = await connected.call_tool("send_message", {"message": "x"}, meta=meta)  # type: ignore[arg-type]
        assert not result.is_error
        (begun,) = said(fleet, seq)[0]
        return begun

    by_header = await run(PARENT, None)
    assert (by_header.trace_id, by_header.parent_span) == (TRACE, SPAN)
    other = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-00"
    by_meta = await run(PARENT, {"traceparent": other})
    assert (by_meta.trace_id, by_meta.parent_span) == ("ab" * 16, "cd" * 8)
    for bad in ("nonsense", "00-" + "0" * 32 + f"-{SPAN}-01", f"ff-{TRACE}-{SPAN}-01"):
        fresh = await run(bad, {"traceparent": bad})
        assert fresh.parent_span == ""
        assert len(fresh.trace_id) == 32
        assert fresh.trace_id != TRACE


async def test_the_feed_of_such_a_call_is_one_tree_and_tells_nothing_twice(fleet: Fleet) -> None:
    seq = fleet.hub.seq
    async with client(fleet, "concierge") as connected:
        await ask(connected, "hello")
    feed = Feed()
    feed.absorb(FleetFrame(fleet.snapshot(), fleet.hub.since(seq, 20_000).events, 0.0))
    (root,) = feed.roots
    lines = []
    for row in rows_of(root, lambda run: True):
        step = row.run.steps[row.place] if row.place != HEAD else None
        lines.append((row.run.agent, step.label if step is not None else "", row.level))
    calls = [line for line in lines if line[1] != "scripted"]
    # The two calls of the middle one are made at once.
    assert calls[:3] == [
        ("concierge", "", 0),
        ("concierge", "research/send_message", 2),
        ("research", "", 3),
    ]
    assert sorted(calls[3:]) == [
        ("archive", "", 6),
        ("research", "archive/send_message", 5),
        ("research", "meta/meta", 5),
    ]
    assert lines.index(("archive", "", 6)) == lines.index(("research", "archive/send_message", 5)) + 1


async def test_records_of_a_run_name_the_run_and_its_trace(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, Any]] = []

    class Listening(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonLines().format(record)))

    caplog.set_level(logging.INFO, "pallas")
    handler = Listening()
    logging.getLogger("pallas").addHandler(handler)
    try:
        seq = fleet.hub.seq
        async with client(fleet, "concierge") as connected:
            await ask(connected, "hello")
    finally:
        logging.getLogger("pallas").removeHandler(handler)
    runs, _ = said(fleet, seq)
    for begun in runs:
        ended = [line for line in lines if line.get("run_id") == begun.run_id]
        assert ended
        assert all(line["trace_id"] == begun.trace_id for line in ended)


def _meta_in(answer: str) -> dict[str, str]:
    """What the metadata server found, wherever it stands in an answer that quotes it."""
    _, _, rest = answer.replace("\\", "").partition("META")
    found: dict[str, str] = json.JSONDecoder().raw_decode(rest)[0]
    return found
