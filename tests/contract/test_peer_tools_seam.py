"""Peers among an agent's tools stand on fast-agent's own ``add_tool``: this fails when a place moves."""

import inspect
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fast_agent.agents.tool_agent import ToolAgent
from fast_agent.types import RequestParams
from fastmcp.tools import FunctionTool
from support.live import agent_module, write_project
from support.project_modules import own_modules

from pallas.config import load_project
from pallas.executors import Emit, ExecutorTurn
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.executors.fastagent.instance_turn import FastAgentInstance
from pallas.executors.fastagent.peer_tools import PeerTool
from pallas.executors.fastagent.peers_seam import PeerTools
from pallas.executors.fastagent.run_progress import RunProgress
from pallas.executors.fastagent.tool_gate_seam import TurnGate
from pallas.executors.tool_gate import CallGate
from pallas.model import Event, Fault, FaultType, ToolEvent, TraceContext
from pallas.telemetry.trace_context import RunTrace, child_of, running

OWN_TOOL = (
    '\n\ndef adder(a: int) -> int:\n    """Its own."""\n    return a + 1\n',
    "servers=[], function_tools=[adder]",
)
CHAIN = """
from fast_agent import FastAgent

fast = FastAgent("one")


@fast.agent(name="first", instruction="You are first.")
@fast.chain(name="one", sequence=["first"], default=True)
async def main() -> None: ...
"""
TEXT = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
ADDER = PeerTool("adder", "Add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}}, True)
WRITER = PeerTool("office.writer", "send_message", "Writes.", TEXT)


@dataclass
class Calls:
    """Peers that answer what they were asked."""

    now: tuple[PeerTool, ...] = (ADDER, WRITER)
    asked: list[tuple[str, str, TraceContext | None]] = field(default_factory=list)
    fault: Fault | None = None

    def tools(self) -> tuple[PeerTool, ...]:
        return self.now

    async def ask(
        self,
        peer: str,
        text: str,
        turn: ExecutorTurn,
        trace: TraceContext | None,
        emit: Emit,
        *,
        call_id: str = "",
    ) -> str:
        self.asked.append((peer, text, trace))
        if self.fault is not None:
            raise self.fault
        return f"{peer} answers {turn.run_id}"


def own_tool(name: str) -> str:
    """An agent with a function of its own that is called like a peer."""
    tool, option = OWN_TOOL
    source = agent_module(name).replace(f'fast = FastAgent("{name}")', f'fast = FastAgent("{name}"){tool}')
    return source.replace("servers=[]", option)


@asynccontextmanager
async def started(
    root: Path, source: str | None, calls: Calls, *, peers: tuple[str, ...] = ("adder", "office.writer")
) -> AsyncIterator[FastAgentExecutor]:
    """The executor of one agent with these peers, in this loop."""
    before = Path.cwd()
    write_project(root, {"one": source})
    project = load_project(root, {**os.environ})
    config = replace(project.agents["one"], peers=peers)
    executor = FastAgentExecutor(project, config)
    executor.call_peers(calls)
    try:
        os.chdir(root)
        with own_modules(root):
            await executor.load()
            await executor.start()
            yield executor
    finally:
        await executor.close(4)
        os.chdir(before)


@asynccontextmanager
async def warm(
    root: Path, source: str | None, calls: Calls
) -> AsyncIterator[tuple[FastAgentInstance, PeerTools]]:
    """An instance of it, leased, and its peers."""
    async with started(root, source, calls) as executor, executor._pool.lease(None) as instance:
        assert instance.peers is not None
        yield instance, instance.peers


async def names(instance: FastAgentInstance) -> list[str]:
    return [tool.name for tool in (await instance.agent.list_tools()).tools]


async def called(
    instance: FastAgentInstance, name: str, arguments: dict[str, Any]
) -> tuple[Any, list[ToolEvent]]:
    """A call as fast-agent's loop makes it, in a run: its result, and what was told of it."""
    assert instance.peers is not None
    told: list[Event] = []
    turn = ExecutorTurn("run1", "one", "x")
    progress = RunProgress("run1", "one", told.append)
    progress.labels = instance.peers.labels
    params = RequestParams(tool_execution_handler=progress)
    instance.gate = TurnGate(CallGate.of(turn), {})
    with running(RunTrace("run1", "one", child_of(None))), instance.peers.serving(turn, told.append):
        result = await instance.agent.call_tool(name, arguments, "use1", request_params=params)
    return result, [event for event in told if isinstance(event, ToolEvent)]


def test_the_places_stand_where_we_know_them() -> None:
    assert list(inspect.signature(ToolAgent.add_tool).parameters) == ["self", "tool", "replace"]
    assert list(inspect.signature(ToolAgent.remove_tool).parameters) == ["self", "name"]
    assert list(inspect.signature(FunctionTool.run).parameters) == ["self", "arguments"]
    assert inspect.iscoroutinefunction(FunctionTool.run)


async def test_peers_are_tools_of_a_warm_instance_and_their_calls_are_told_with_a_span(
    tmp_path: Path,
) -> None:
    calls = Calls()
    async with warm(tmp_path, None, calls) as (instance, peers):
        assert await names(instance) == []  # they come with the first turn
        await peers.refresh()
        assert await names(instance) == ["adder", "office_writer"]
        (shown, _) = (await instance.agent.list_tools()).tools
        assert (shown.description, shown.input_schema) == ("Adds.", dict(ADDER.schema))
        result, events = await called(instance, "adder", {"a": 1})
        assert (result.content[0].text, result.is_error) == ("adder answers run1", False)
        assert [(each.server, each.tool, each.phase) for each in events] == [
            ("adder", "Add", "started"),
            ("adder", "Add", "completed"),
        ]
        (peer, text, trace) = calls.asked[0]
        assert (peer, text) == ("adder", '{"a": 1}')
        assert trace is not None
        assert trace.span_id == events[0].span_id != ""
        # Text is what an agent takes that is no typed handler.
        await called(instance, "office_writer", {"message": "write"})
        assert calls.asked[-1][:2] == ("office.writer", "write")
        missing, _ = await called(instance, "office_writer", {"text": "write"})
        assert missing.is_error
        assert len(calls.asked) == 2


async def test_a_fault_of_a_peer_is_an_error_for_the_model(tmp_path: Path) -> None:
    calls = Calls(fault=Fault(FaultType.TIMEOUT, "it took too long"))
    async with warm(tmp_path, None, calls) as (instance, peers):
        await peers.refresh()
        result, events = await called(instance, "adder", {})
        assert result.is_error
        assert result.content[0].text == "Error (TIMEOUT): it took too long. Trying again later may help."
        assert [each.phase for each in events] == ["started", "failed"]


async def test_outside_of_a_turn_nobody_is_asked(tmp_path: Path) -> None:
    calls = Calls()
    async with warm(tmp_path, None, calls) as (instance, peers):
        await peers.refresh()
        assert (await instance.agent.call_tool("adder", {})).is_error
        assert calls.asked == []


async def test_tools_are_exchanged_only_when_the_peers_are_others(tmp_path: Path) -> None:
    calls = Calls()
    async with warm(tmp_path, None, calls) as (instance, peers):
        await peers.refresh()
        before = list(instance.agent._tool_schemas)
        await peers.refresh()
        assert all(a is b for a, b in zip(before, instance.agent._tool_schemas, strict=True))
        calls.now = (replace(ADDER, description="Adds more."),)
        await peers.refresh()
        (only,) = (await instance.agent.list_tools()).tools
        assert (only.name, only.description) == ("adder", "Adds more.")
        calls.now = ()
        await peers.refresh()
        assert await names(instance) == []


async def test_a_name_that_is_taken_is_kept_and_what_the_peer_is_called_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    async with warm(tmp_path, own_tool("one"), calls) as (instance, peers):
        with caplog.at_level(logging.WARNING):
            await peers.refresh()
        assert sorted(await names(instance)) == ["adder", "adder_2", "office_writer"]
        assert "its peer adder is the tool adder_2" in caplog.text
        own, events = await called(instance, "adder", {"a": 1})
        assert own.content[0].text == "2"
        assert {(each.server, each.tool) for each in events} == {("local", "adder")}
        assert calls.asked == []
        _, events = await called(instance, "adder_2", {"a": 1})
        assert {(each.server, each.tool) for each in events} == {("adder", "Add")}
        # As the user wrote it in agents.yaml, a peer may be named in a list of allowed tools.
        turn = ExecutorTurn("run1", "one", "x")
        listed = replace(turn.params, values={"tools_allowlist": ["office.writer", "other"]})
        spelled = peers.spelled(replace(turn, params=listed))
        assert spelled.params.get("tools_allowlist") == ["office_writer", "other"]
        assert peers.spelled(turn) is turn


async def test_a_copy_that_fast_agent_makes_of_the_agent_has_no_peers(tmp_path: Path) -> None:
    async with warm(tmp_path, own_tool("one"), Calls()) as (instance, peers):
        await peers.refresh()
        copy = await instance.agent.spawn_detached_instance(name="copy")
        try:
            assert [tool.name for tool in (await copy.list_tools()).tools] == ["adder"]
        finally:
            await copy.shutdown()


async def test_an_agent_that_uses_no_tools_cannot_have_peers(tmp_path: Path) -> None:
    with pytest.raises(Fault, match=r"agents\.one: one has peers, which are tools of a model") as raised:
        async with started(tmp_path, CHAIN, Calls()):
            pass
    assert raised.value.type is FaultType.CONFIG


async def test_an_agent_without_peers_has_nothing_of_it(tmp_path: Path) -> None:
    async with started(tmp_path, None, Calls(), peers=()) as executor, executor._pool.lease(None) as instance:
        assert instance.peers is None
        assert await names(instance) == []
