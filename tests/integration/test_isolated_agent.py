"""An agent does the same in the fleet's process and in one of its own: everything here is asked of both."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from support.live import MODERN_FIRST, agent_module, ask, client, running
from support.offline import model_record, offline_project
from support.processes import below
from support.recording import Recorder, recording
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import (
    AuthHop,
    Event,
    Exchange,
    LoopStopped,
    RunFinished,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
)
from pallas.model.fingerprint import fingerprint
from pallas.telemetry.log import close_logging, setup_logging

KINDS = ("none", "process")
BEARER = "canary-bearer-0a1b2c3d4e5f"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
BOSS = '''
import logging

from fast_agent import FastAgent

fast = FastAgent("boss")
log = logging.getLogger("desk")


async def tell(text: str) -> str:
    """Say something to the log, and to whoever reads what is printed."""
    log.warning("the desk says %s", text)
    print("printed", text, flush=True)
    return "told " + text


@fast.agent(
    name="boss",
    instruction="You are boss.",
    servers=["helper", "elder_helper", "echo", "rec", "meta"],
    function_tools=[tell],
)
async def main() -> None: ...
'''
META = '''
from stdio_server import StdioServer

server = StdioServer("meta")

@server.tool()
def meta() -> str:
    """The span that came along."""
    return str(server.meta.get("traceparent"))

server.run()
'''
COUNTER = '''
from itertools import count
from stdio_server import StdioServer

server = StdioServer("counter")
numbers = count(1)

@server.tool()
def next_number() -> str:
    """One more than before, on this connection."""
    return f"number {next(numbers)}"

server.run()
'''
SCRIPT = """
rules:
  - when: {last: user, text: count on}
    call: [{tool: counter__next_number, arguments: {}}]
  - when: {last: user, system: You are boss, text: delegate as before}
    call: [{tool: elder_helper__send_message, arguments: {message: "one word"}}]
  - when: {last: user, system: You are boss, text: delegate}
    call: [{tool: helper__send_message, arguments: {message: "one word"}}]
  - when: {last: user, text: use the tool}
    say: "I look."
    call: [{tool: echo__echo, arguments: {text: "{{ last }}"}}]
  - when: {last: user, text: where am I}
    call: [{tool: meta__meta, arguments: {}}]
  - when: {last: user, text: note}
    call: [{tool: rec__note, arguments: {text: "{{ last }}"}}]
  - when: {last: user, text: slow tool}
    call: [{tool: echo__slow, arguments: {text: "x"}}]
  - when: {last: user, text: tell}
    call: [{tool: tell, arguments: {text: "{{ last }}"}}]
  - when: {user: repeat}
    call: [{tool: echo__echo, arguments: {text: "again"}}]
  - when: {last: user, images: true}
    say: "{{ image.count }} {{ image.kind }} {{ image.width }}x{{ image.height }}"
  - when: {last: user, text: word by word}
    say: "one two three four five six seven"
    pace: 0.01
  - when: {last: user}
    say: "turn {{ turns }}: {{ last }}"
  - when: {last: tool}
    say: "{{ result }}"
"""

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
both_eras = pytest.mark.parametrize("era", MODERN_FIRST)


@dataclass
class Place:
    """A fleet, what its agents' downstream recorder heard, and its log."""

    kind: str
    fleet: Fleet
    recorder: Recorder
    log: Path

    def events(self, since: int) -> tuple[Event, ...]:
        return self.fleet.hub.since(since, 20_000).events

    def records(self) -> Iterator[dict[str, Any]]:
        for line in self.log.read_text("utf-8").splitlines():
            yield json.loads(line)

    def executor(self, agent: str) -> Any:
        return next(each.executor for each in self.fleet.agents if each.name == agent)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Place]:
    kind = request.param
    root = tmp_path_factory.mktemp(f"isolated_{kind}")
    async with recording() as recorder:
        offline_project(
            root,
            {
                "boss": BOSS,
                "helper": None,
                "owner": agent_module("owner", ("counter",)),
            },
            SCRIPT,
            peers=("helper",),
            elders=("helper",),
            keys={
                "boss": {"isolation": kind, "model_capabilities": {"vision": True}, "max_instances": 4},
                "helper": {"isolation": kind},
                "owner": {"isolation": kind, "instance_scope": "conversation"},
            },
            files={"meta_server.py": META, "counter_server.py": COUNTER},
            config={
                "mcp": {
                    "servers": {
                        "rec": {"url": recorder.url, "forward_inbound_auth": True},
                        "meta": {"command": "python", "args": ["meta_server.py"]},
                        "counter": {"command": "python", "args": ["counter_server.py"]},
                    }
                }
            },
        )
        log = root / "pallas.log"
        setup_logging("info", path=log)
        try:
            async with running(root) as fleet:
                assert [each.reason for each in fleet.agents] == ["", "", ""]
                yield Place(kind, fleet, recorder, log)
        finally:
            close_logging()


async def test_an_agent_has_a_process_of_its_own_only_where_it_was_asked_for(place: Place) -> None:
    mine = psutil.Process()
    for agent in place.fleet.agents:
        shown = agent.snapshot()
        assert shown.isolation == place.kind
        if place.kind == "none":
            assert shown.pid is None
        else:
            assert shown.pid in {each.pid for each in mine.children(recursive=True)}


@both_eras
async def test_a_conversation_is_remembered_with_its_tool_calls(place: Place, era: str) -> None:
    handle = f"remember-{era}"
    async with client(place.fleet, "boss", era=era) as caller:
        assert "echo:use the tool" in await ask(caller, "use the tool", conversation_id=handle)
        for number in range(2, 5):
            assert f"turn {number}: and" in await ask(caller, f"and {number}", conversation_id=handle)
        assert "turn 1: alone" in await ask(caller, "alone")
    request = next(
        each for each in reversed(model_record(place.fleet).requests) if "and 4" in json.dumps(each)
    )
    roles = [message["role"] for message in request["messages"]]
    assert roles == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    (called,) = request["messages"][2]["tool_calls"]
    assert called["function"]["name"] == "echo__echo"
    assert called["id"] == request["messages"][3]["tool_call_id"]


async def test_history_that_a_caller_brings_reaches_the_model(place: Place) -> None:
    rows = [{"role": "user", "content": "I am Ada"}, {"role": "assistant", "content": "Hello Ada"}]
    async with client(place.fleet, "boss") as caller:
        assert "turn 2: who am I" in await ask(caller, "who am I", history=rows)


@both_eras
async def test_pictures_arrive(place: Place, era: str) -> None:
    async with client(place.fleet, "boss", era=era) as caller:
        picture = {"data": PNG, "mime_type": "image/png"}
        assert "1 PNG 1x1" in await ask(caller, "look", images=[picture], conversation_id=f"look-{era}")
        assert "turn 2" in await ask(caller, "and now", conversation_id=f"look-{era}")


@both_eras
async def test_an_answer_streams_word_by_word(place: Place, era: str) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss", era=era) as caller:
        answer = await ask(caller, "word by word")
    deltas = [each.text for each in place.events(before) if isinstance(each, TextDelta)]
    assert len(deltas) > 3
    assert "".join(deltas) in answer


async def test_calls_and_steps_are_told_in_order_and_the_usage_at_the_end(place: Place) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss") as caller:
        await ask(caller, "use the tool")
    told = [each for each in place.events(before) if getattr(each, "agent", "") == "boss"]
    kinds = [type(each) for each in told if not isinstance(each, TextDelta)]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    calls = [each for each in told if isinstance(each, ToolEvent)]
    assert [(each.server, each.tool, each.phase) for each in calls] == [
        ("echo", "echo", "started"),
        ("echo", "echo", "completed"),
    ]
    assert len({each.call_id for each in calls}) == 1
    steps = [(each.step, each.kind) for each in told if isinstance(each, StepStarted)]
    assert steps[0] == (1, "llm")
    (end,) = [each for each in told if isinstance(each, RunFinished)]
    assert (end.outcome, end.tools) == ("ok", 1)
    assert end.tokens_in
    assert end.tokens_out


@both_eras
async def test_a_caller_that_gives_up_ends_the_work_and_the_next_is_answered(place: Place, era: str) -> None:
    handle = f"given-up-{era}"
    async with client(place.fleet, "boss", era=era) as caller:
        await ask(caller, "first", conversation_id=handle)
        before = place.fleet.hub.seq
        call = asyncio.create_task(ask(caller, "slow tool", conversation_id=handle))
        started = await until(
            lambda: [e for e in place.events(before) if isinstance(e, ToolEvent) and e.tool == "slow"]
        )
        place.fleet.kernel.cancel(started[0].run_id)
        with pytest.raises(AssertionError, match="cancelled"):
            await call
        (end,) = [each for each in place.events(before) if isinstance(each, RunFinished)]
        assert end.outcome == "cancelled"
        phases = [each.phase for each in place.events(before) if isinstance(each, ToolEvent)]
        assert phases == ["started", "failed"]
        assert "turn 2: second" in await ask(caller, "second", conversation_id=handle)


@pytest.mark.slow
@both_eras
async def test_a_bearer_goes_with_its_own_run_to_the_server_that_was_opted_in(place: Place, era: str) -> None:
    before, heard = place.fleet.hub.seq, len(place.recorder.requests)

    async def run(number: int) -> None:
        async with client(place.fleet, "boss", era=era, bearer=f"{BEARER}-{number}") as caller:
            assert f"noted note {number} {era}" in await ask(caller, f"note {number} {era}")

    await asyncio.gather(*map(run, range(4)))
    calls = [each for each in place.recorder.requests[heard:] if each.what == "tools/call"]
    assert sorted((each.text, each.bearer) for each in calls) == [
        (f"note {number} {era}", f"{BEARER}-{number}") for number in range(4)
    ]
    hops = [
        each for each in place.events(before) if isinstance(each, AuthHop) and each.method == "tools/call"
    ]
    forwarded = {each.fingerprint for each in hops if each.source == "forwarded"}
    assert forwarded == {fingerprint(f"{BEARER}-{number}") for number in range(4)}
    principals = {each.principal for each in place.events(before) if isinstance(each, RunStarted)}
    assert principals == forwarded


async def test_a_loop_that_gets_nowhere_is_stopped_and_says_so(place: Place) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss") as caller:
        assert "[Stopped: " in await ask(caller, "repeat it")
    (stop,) = [each for each in place.events(before) if isinstance(each, LoopStopped)]
    assert (stop.reason, stop.tool, stop.count) == ("repeat", "echo/echo", 3)


@both_eras
@pytest.mark.parametrize("said", ["delegate", "delegate as before"])
async def test_a_trace_goes_through_agents_in_both_eras(place: Place, era: str, said: str) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss", era=era) as caller:
        assert ": one word" in await ask(caller, said)
    runs = [each for each in place.events(before) if isinstance(each, RunStarted)]
    assert [each.agent for each in runs] == ["boss", "helper"]
    assert runs[0].trace_id == runs[1].trace_id
    (call,) = [
        e for e in place.events(before) if isinstance(e, ToolEvent) and e.phase == "started" and not e.nested
    ]
    assert runs[1].parent_span == call.span_id != ""


async def test_a_stdio_server_is_told_the_callers_trace_and_the_calls_span(place: Place) -> None:
    before = place.fleet.hub.seq
    parent = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    async with client(place.fleet, "boss") as caller:
        result = await caller.call_tool("send_message", {"message": "where am I"}, meta=parent)
    (call,) = [e for e in place.events(before) if isinstance(e, ToolEvent) and e.phase == "started"]
    assert f"00-{TRACE}-{call.span_id}-01" in str(result.content)


def exchanges(place: Place, since: int) -> tuple[Exchange, ...]:
    run = next(each for each in place.events(since) if isinstance(each, RunStarted) and each.agent == "boss")
    return place.fleet.exchanges(run.run_id)


@both_eras
async def test_what_went_over_the_wire_is_kept_without_a_credential(place: Place, era: str) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss", era=era, bearer=BEARER) as caller:
        await ask(caller, f"note {BEARER}")

    def down() -> list[Exchange]:
        kept = [e for e in exchanges(place, before) if e.side == "downstream" and e.method == "tools/call"]
        return [each for each in kept if each.response and each.seconds is not None]

    (call,) = await until(down)
    assert (call.peer, call.status) == ("rec", 200)
    assert json.loads(call.request)["params"]["name"] == "note"
    assert json.loads(call.response)["result"]
    assert f"[key {fingerprint(BEARER)}]" in str(call.request_headers)
    assert BEARER not in repr(exchanges(place, before))


async def test_a_run_in_flight_shows_what_it_waits_for(place: Place) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss") as caller:
        call = asyncio.create_task(ask(caller, "slow tool"))
        open_ = await until(
            lambda: [e for e in exchanges(place, before) if e.side == "downstream" and "slow" in e.request]
        )
        assert open_[0].seconds is None
        run = next(each for each in place.events(before) if isinstance(each, RunStarted))
        place.fleet.kernel.cancel(run.run_id)
        with pytest.raises(AssertionError, match="cancelled"):
            await call


@both_eras
async def test_records_of_the_agents_code_are_in_the_log_with_the_run_and_no_token(
    place: Place, era: str
) -> None:
    before = place.fleet.hub.seq
    async with client(place.fleet, "boss", era=era, bearer=BEARER) as caller:
        await ask(caller, f"tell {era} {BEARER}")
    run = next(each for each in place.events(before) if isinstance(each, RunStarted))
    said = await until(
        lambda: [each for each in place.records() if f"the desk says tell {era}" in each["message"]]
    )
    (record,) = said
    assert (record["logger"], record["level"]) == ("desk", "WARNING")
    assert (record["agent"], record["run_id"], record["trace_id"]) == ("boss", run.run_id, run.trace_id)
    assert record["message"].endswith("[redacted]")
    assert BEARER not in place.log.read_text("utf-8")


@pytest.mark.slow
@both_eras
async def test_twenty_runs_at_once_stay_apart(place: Place, era: str) -> None:
    async with client(place.fleet, "boss", era=era) as caller:

        async def talk(number: int) -> list[str]:
            handle = f"many-{era}-{number}"
            return [await ask(caller, f"I am {number}.", conversation_id=handle) for _ in range(3)]

        answers = await asyncio.gather(*map(talk, range(20)))
    for number, said in enumerate(answers):
        assert [re.findall(r"turn (\d): I am (\d+)\.", text) for text in said] == [
            [(str(turn), str(number))] for turn in (1, 2, 3)
        ]


async def test_a_conversation_has_its_own_connection_and_takes_it_along_when_it_ends(place: Place) -> None:
    def counters() -> int:
        return len(below(os.getpid(), "counter_server.py"))

    async with client(place.fleet, "owner") as caller:
        first = [await ask(caller, "count on", conversation_id="own-a") for _ in range(2)]
        second = await ask(caller, "count on", conversation_id="own-b")
    assert ["number 1" in first[0], "number 2" in first[1], "number 1" in second] == [True, True, True]
    before = counters()
    kept = place.fleet.kernel._conversations["owner"]._all
    (key,) = (key for key, each in kept.items() if any("own-a" in str(name) for name in each.names))
    place.executor("owner").release(key)
    await until(lambda: counters() == before - 1)


async def test_what_is_known_of_an_agent_is_the_same(place: Place) -> None:
    info = place.executor("boss").info
    assert (info.model, info.vision, info.keeps_history) == ("scripted", True, True)
    assert info.servers == ("helper", "elder_helper", "echo", "rec", "meta")
    assert info.instruction == "You are boss."
    assert re.fullmatch(r"agents/boss.py:\d+", info.defined)
    assert place.executor("boss").problems() == ()
