"""Remote agents that are agents of another Pallas, and of a stock fast-agent: memory, progress, faults."""

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from support.live import ERAS, agent_module, all_ready, client, running
from support.offline import model_record, offline_project
from support.pictures import picture
from support.ports import free_ports
from support.remotes import Talk, remote, with_remote
from support.served import fault_in, text_of
from support.typed import typed_project
from support.waiting import until

from pallas.executors.remote.endpoint_watch import WatchIntervals
from pallas.executors.remote.remote_executor import RemoteExecutor
from pallas.fleet.fleet import Fleet
from pallas.model import (
    Fault,
    FaultType,
    Image,
    Params,
    StepStarted,
    TextDelta,
    ToolEvent,
    TraceContext,
)
from pallas.telemetry.trace_context import RunTrace
from pallas.telemetry.trace_context import running as run_of
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.run_feed import Feed

SCRIPT = """
rules:
  - when: {last: user, regex: '^how many'}
    say: "{{ turns }} from {{ first }}"
  - when: {last: user, regex: 'look up (?P<what>\\w+)'}
    say: I look.
    call:
      - tool: echo__echo
        arguments: {text: "{{ match.what }}"}
  - when: {last: tool, tool: echo__echo}
    say: "It says {{ result }}"
  - when: {last: user, regex: '^take long'}
    call:
      - tool: echo__slow
        arguments: {text: x}
  - when: {text: too much}
    error: {status: 401, message: wrong key}
  - when: {last: user, regex: '^picture'}
    say: "{{ image.width }} wide"
  - when: {last: user}
    say: "heard {{ last }}"
"""


def scholars(root: Path) -> Path:
    """A project with the agent ``scholar``, who sees pictures, at one port."""
    return offline_project(
        root,
        {"scholar": agent_module("scholar", ("echo",))},
        SCRIPT,
        top={"port": free_ports(1)[0]},
        keys={"scholar": {"port": None, "model_capabilities": {"vision": True}}},
    )


@asynccontextmanager
async def fleet_at(root: Path) -> AsyncIterator[Fleet]:
    """A fleet of it that is ready."""
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        yield fleet


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    """The fleet of the other side."""
    async with fleet_at(scholars(tmp_path_factory.mktemp("there"))) as fleet:
        yield fleet


pytestmark = pytest.mark.asyncio(loop_scope="module")


def url_of(fleet: Fleet) -> str:
    """Where its agent is."""
    return next(agent.url for agent in fleet.agents)


async def test_a_conversation_goes_on_there_and_is_told_again_after_a_restart(tmp_path: Path) -> None:
    root = scholars(tmp_path)
    async with fleet_at(root) as fleet, remote(url_of(fleet)) as executor:
        talk = Talk(executor)
        assert (await talk.say("hello")).texts == ("heard hello",)
        assert (await talk.say("how many")).texts == ("2 from hello",)
        assert (await Talk(executor, lease="id:two").say("how many")).texts == ("1 from how many",)
        assert (await Talk(executor, lease=None).say("how many")).texts == ("1 from how many",)
        await fleet.stop()
        async with fleet_at(root):
            assert (await talk.say("how many now")).texts == ("3 from hello",)
            assert (await talk.say("how many then")).texts == ("4 from hello",)
            # A thread that was made shorter here is told as it is here.
            talk.history = talk.history[2:]
            assert (await talk.say("how many left")).texts == ("4 from how many",)


async def test_what_is_done_there_is_seen_here(there: Fleet) -> None:
    async with remote(url_of(there)) as executor:
        talk = Talk(executor)
        result = await talk.say("look up lamp", stream_text=True)
        # What was said on the way, and the answer itself.
        assert result.texts == ("I look.", 'It says {"result":"echo:lamp"}')
        assert result.usage.input_tokens and result.usage.output_tokens
        assert {step.actor for step in talk.heard(StepStarted)} == {"far"}
        calls = [(each.server, each.tool, each.phase) for each in talk.heard(ToolEvent)]
        assert calls == [("echo", "echo", "started"), ("echo", "echo", "completed")]
        said = talk.heard(TextDelta)
        assert {each.actor for each in said} == {""}
        assert "I look." in "".join(each.text for each in said)

        talk.events.clear()
        await talk.say("hello")
        assert talk.heard(TextDelta) == []

        seen = await talk.say("picture", images=(Image(base64.b64encode(picture()).decode(), "image/png"),))
        assert executor.info.vision and seen.texts == ("64 wide",)

        await talk.say("hello", params=Params({"temperature": 0.25}))
        assert model_record(there).requests[-1]["temperature"] == 0.25


async def test_a_fault_there_is_the_same_fault_here(there: Fleet) -> None:
    # DR-22
    async with remote(url_of(there)) as executor:
        with pytest.raises(Fault) as raised:
            await Talk(executor).say("too much")
        fault = raised.value
        assert (fault.type, fault.code, fault.retryable) == (FaultType.AUTH, -32003, False)
        assert fault.message.startswith("far: ") and "HTTP 401" in fault.message
        assert fault.data["providerId"] == "generic"


async def test_what_does_not_fit_a_typed_handler_there_is_its_senders_mistake_here(tmp_path: Path) -> None:
    # DR-22: a session here is as good as before, and REST says 400 and not 502.
    source = """
        from dataclasses import dataclass
        from pallas.contract import HandlerResponse

        @dataclass
        class Add:
            a: int

        async def adder(payload, metadata):
            return HandlerResponse.respond(payload)
    """
    root = typed_project(tmp_path, source, {"adder": {"payload": "Add"}})
    async with fleet_at(root) as fleet, remote(url_of(fleet)) as executor:
        talk = Talk(executor)
        with pytest.raises(Fault) as raised:
            await talk.say('{"a": "many"}')
        fault = raised.value
        assert (fault.type, fault.data["field"]) == (FaultType.PROTOCOL, "a")
        assert fault.data["system"] == "validation"
        assert fault.message.startswith('far: Add.a is "many"')
        assert (await talk.say('{"a": 2}')).texts == ('{"a": 2}',)


async def test_cancelling_ends_the_run_there_and_a_drain_knows_who_asked(there: Fleet) -> None:
    async with remote(url_of(there)) as executor:
        with run_of(RunTrace("r1", "far", TraceContext("ab" * 16, "cd" * 8))):
            run = asyncio.create_task(Talk(executor).say("take long"))
            async with asyncio.timeout(90):
                (active,) = await until(lambda: there.kernel.in_flight.of("scholar"))
                assert active.context.trace_id == "ab" * 16
                run.cancel()
                await asyncio.wait({run})
            await until(lambda: not there.kernel.in_flight.of("scholar"))


async def test_a_question_that_goes_in_a_circle_between_fleets_ends(there: Fleet) -> None:
    async with remote(url_of(there)) as executor:
        context = TraceContext("ab" * 16, "cd" * 8, baggage="who=me,pallas-hops=15")
        with run_of(RunTrace("r1", "far", context)):
            await Talk(executor).say("hello")
        context = TraceContext("ab" * 16, "cd" * 8, baggage="who=me,pallas-hops=16")
        with run_of(RunTrace("r2", "far", context)), pytest.raises(Fault, match="in a circle"):
            await Talk(executor).say("hello")


@pytest.mark.slow
async def test_a_virtual_server_goes_on_with_its_thread(there: Fleet) -> None:
    url = f"{there.ports.origin}/virtual/agent-scholar/mcp"
    async with remote(url) as executor:
        talk = Talk(executor)
        assert (await talk.say("hello", params=Params({"temperature": 0.5}))).texts == ("heard hello",)
        assert (await talk.say("how many")).texts == ("2 from hello",)
        executor.release("id:one")
        answer = await talk.say("look up lamp")
        assert answer.texts == ("I look.", 'It says {"result":"echo:lamp"}')
        assert {step.actor for step in talk.heard(StepStarted)} == {"far"}
    project = f"{there.ports.origin}/projects/test/mcp"
    async with remote(project, tool="agent-scholar__chat") as executor:
        assert (await Talk(executor).say("hello")).texts == ("heard hello",)


@pytest.mark.parametrize("era", ERAS)
async def test_one_fleet_stands_before_another(there: Fleet, tmp_path: Path, era: str) -> None:
    async with running(with_remote(tmp_path, url_of(there))) as fleet:
        await until(lambda: all_ready(fleet))
        async with client(fleet, "far", era=era) as far:
            lines: list[str] = []

            async def hear(progress: float, total: float | None, message: str | None) -> None:
                lines.append(message or "")

            asked = {"message": "look up lamp", "conversation_id": "new", "stream_text": True}
            result = await far.call_tool("send_message", asked, progress_callback=hear)
            meta: Any = result.meta
            assert not result.is_error and meta["local.pallas/steps"] == 3
            assert {"far step 1 (llm)", "echo/echo: started", "echo/echo: completed"} <= set(lines)
            assert "".join(line for line in lines if line.startswith("far » ")).startswith("far » I look.")
            call = await fleet.kernel.step_reader.get(meta["local.pallas/runId"], 1)
            assert call is not None
            assert (call.step.kind, call.step.name, call.step.state) == ("agent", "far", "done")
            assert json.loads(call.request)["arguments"] == {"message": "look up lamp"}
            assert "echo:lamp" in call.response
            tool = await fleet.kernel.step_reader.get(meta["local.pallas/runId"], 2)
            assert tool is not None
            step = tool.step
            assert (step.kind, step.name, step.state, step.parent) == ("tool", "echo__echo", "done", 1)
            feed = Feed()
            feed.absorb(FleetFrame(fleet.snapshot(), fleet.hub.since(0, 20_000).events, 0.0))
            shown = feed.run(meta["local.pallas/runId"])
            assert shown is not None
            titles = [(each.title, each.seconds(0.0)) for each in shown.steps]
            assert titles == [("1. agent far", call.step.seconds), ("2. echo/echo", step.seconds)]
            handle = meta["local.pallas/conversationId"]
            more = {"message": "how many", "conversation_id": handle}
            assert text_of(await far.call_tool("send_message", more)) == "2 from look up lamp"
            body = fault_in(await far.call_tool("send_message", {"message": "too much"}))
            assert (body["code"], body["data"]["type"]) == (-32003, "AUTH")


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stock ``fast-agent serve`` in a process of its own; its URL."""
    home, (port,) = tmp_path_factory.mktemp("stock"), free_ports(1)
    program = str(Path(sys.executable).parent / "fast-agent")
    options = ["--transport", "http", "--host", "127.0.0.1", "--port", str(port), "--home", str(home)]
    quiet = {"FASTMCP_CHECK_FOR_UPDATES": "off", "FASTMCP_SHOW_SERVER_BANNER": "false"}
    process = subprocess.Popen(
        [program, "serve", *options, "--model", "passthrough", "--name", "stock"],
        env={**os.environ, **quiet},
        cwd=home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


async def up(executor: RemoteExecutor) -> None:
    """Start it when the other side is there."""
    async with asyncio.timeout(180):
        while True:
            try:
                return await executor.start()
            except Fault as fault:
                assert fault.type is FaultType.TRANSPORT, fault
                await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_stock_fast_agent_keeps_conversations_apart(stock: str) -> None:
    # It may take its time to answer: a look that fails would end its sessions.
    pace = WatchIntervals(look=120, connect=120)
    async with remote(stock, start=False, pace=pace) as executor:
        await up(executor)
        one, two = Talk(executor, lease="id:one"), Talk(executor, lease="id:two")
        answers: Any = await asyncio.gather(one.say("first of one"), two.say("first of two"))
        assert [answer.texts for answer in answers] == [("first of one",), ("first of two",)]
        assert {step.actor for step in one.heard(StepStarted)} == {"far"}
        # Its session knows what was said, so nothing is told again.
        assert (await one.say("second of one")).texts == ("second of one",)
        # A conversation that its session does not know is told from the beginning.
        executor.release("id:one")
        told = (await one.say("third of one")).texts[0]
        assert "user: first of one" in told and "second of one" in told and "of two" not in told
        assert (await Talk(executor, lease=None).say("alone")).texts == ("alone",)
