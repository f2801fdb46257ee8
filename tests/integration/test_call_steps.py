"""Calls of tools and agents, and summaries, are steps of their run, as the questions to models are."""

import json
from pathlib import Path

import pytest
from support.kept import written
from support.live import ERAS, MODERN_FIRST, agent_module, ask, client, module_fleet
from support.offline import offline_project

from pallas.fleet.fleet import Fleet
from pallas.fleet.local_port import LocalPort
from pallas.model import RunStarted, StepChanged, StepDetail, ToolEvent
from pallas.model.step_view import view_of

BEARER = "canary-bearer-7d2c1b0a9f8e"
SERVER = '''
from stdio_server import StdioServer

server = StdioServer("shelf")


@server.tool()
def find(id: int, text: str = "") -> str:
    """Find a book."""
    if id == 13:
        raise ValueError("there is no book 13")
    return f"book {id} {text}"


server.run()
'''
# The model of a parent asks its child, and that asks a tool.
SCRIPT = """
rules:
  - when: {last: user, text: Summarise our conversation}
    say: "a summary"
  - when: {last: user, text: fail}
    call: [{tool: shelf__find, arguments: {id: 13}}]
  - when: {last: user, system: parent}
    call:
      - {tool: agent__child, arguments: {message: "look for two"}}
      - {tool: agent__child, arguments: {message: "look for two"}}
  - when: {last: user, text: ask the peer}
    call: [{tool: plain, arguments: {message: "look for two"}}]
  - when: {last: user, text: look for}
    call:
      - {tool: shelf__find, arguments: {id: 1, text: "TEXT"}}
      - {tool: shelf__find, arguments: {id: 2}}
  - when: {last: tool}
    say: "found: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
""".replace("TEXT", BEARER)
PARENT = """
from fast_agent import FastAgent

fast = FastAgent("parent")


@fast.agent(name="child", instruction="You are the small one.", servers=["shelf"])
@fast.agent(name="parent", instruction="You are the parent.", agents=["child"], default=True)
async def main() -> None: ...
"""
SMALL = {"model_capabilities": {"context_window": 900}}

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]


@module_fleet(database="memory", ready=True)
def fleet(folder: Path) -> Path:
    names = ("plain", "far", "asker", "small", "far_small")
    return offline_project(
        folder,
        {"parent": PARENT, **{name: agent_module(name, ("shelf",)) for name in names}, "router": None},
        SCRIPT,
        keys={
            "far": {"isolation": "process"},
            "asker": {"peers": ["plain"]},
            "small": SMALL,
            "far_small": {**SMALL, "isolation": "process"},
            "router": {"kind": "router", "module": None, "agents": ["plain"], "fallback": "plain"},
        },
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER},
    )


async def steps_of(
    fleet: Fleet, agent: str, text: str, era: str = ERAS[0], **more: str
) -> tuple[StepDetail, ...]:
    """Ask an agent; the steps of its run."""
    before = fleet.hub.seq
    async with client(fleet, agent, era=era, bearer=BEARER) as connected:
        await ask(connected, text, **more)
    started = [each for each in fleet.hub.since(before).events if isinstance(each, RunStarted)]
    run = next(each.run_id for each in started if each.agent == agent)
    return await details(fleet, run)


async def details(fleet: Fleet, run: str) -> tuple[StepDetail, ...]:
    port = LocalPort(fleet)
    return tuple([await port.step(run, each.number) for each in await port.steps(run)])


def shape(steps: tuple[StepDetail, ...]) -> list[tuple[str, str, int]]:
    return [(each.step.kind, each.step.name, each.step.parent) for each in steps]


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("agent", ["plain", "far"])
async def test_calls_made_at_once_are_steps_below_the_question_that_wanted_them(
    fleet: Fleet, agent: str, era: str
) -> None:
    before = fleet.hub.seq
    steps = await steps_of(fleet, agent, "look for both", era)
    assert shape(steps) == [
        ("model", "scripted", 0),
        ("tool", "shelf__find", 1),
        ("tool", "shelf__find", 1),
        ("model", "scripted", 0),
    ]
    first, second = (each for each in steps if each.step.kind == "tool")
    assert json.loads(first.request) == {"name": "shelf__find", "arguments": {"id": 1, "text": "[redacted]"}}
    assert json.loads(second.request)["arguments"] == {"id": 2}
    assert view_of(first.request, first.response).answer == "book 1 [redacted]"
    assert first.step.digest != second.step.digest
    assert all(each.step.state == "done" and each.step.seconds is not None for each in steps)
    assert BEARER not in repr(steps)
    events = [each for each in fleet.hub.since(before).events if isinstance(each, ToolEvent)]
    assert {(each.call_id, each.span_id) for each in events} == {
        (each.step.call_id, each.step.span_id) for each in (first, second)
    }
    # The begin and the end of each step are told, as it is recorded.
    told = [each.step for each in fleet.hub.since(before).events if isinstance(each, StepChanged)]
    begun = [(each.number, each.kind, each.parent, each.call_id) for each in told if each.seconds is None]
    assert sorted(begun) == [
        (each.step.number, each.step.kind, each.step.parent, each.step.call_id) for each in steps
    ]
    ended = {each.number: (each.state, each.seconds) for each in told if each.seconds is not None}
    assert ended == {each.step.number: (each.step.state, each.step.seconds) for each in steps}
    # The same call has the same digest in each run.
    assert second.step.digest == (await steps_of(fleet, agent, "look for both", era))[2].step.digest


async def test_they_are_in_the_ledger_as_they_are_in_memory(fleet: Fleet) -> None:
    steps = await steps_of(fleet, "far", "look for both")
    ledger, run = fleet.ledger, steps[0].step.run_id
    assert ledger is not None
    await written(ledger, run)
    assert await ledger.steps.list(run) == tuple(each.step for each in steps)
    for each in steps:
        assert await ledger.steps.get(run, each.step.number) == each


async def test_a_failed_call_says_why(fleet: Fleet) -> None:
    _, call, _ = await steps_of(fleet, "plain", "fail")
    assert (call.step.kind, call.step.state) == ("tool", "failed")
    assert "Error executing tool find" in call.step.fault
    result = json.loads(call.response)
    assert result["isError"] is True
    assert "Error executing tool find" in result["content"][0]["text"]


async def test_what_agents_of_one_definition_do_is_below_the_call_of_each(fleet: Fleet) -> None:
    steps = await steps_of(fleet, "parent", "go")
    by_parent: dict[int, list[tuple[str, str]]] = {}
    for kind, name, parent in shape(steps):
        by_parent.setdefault(parent, []).append((kind, name))
    children = [each.step.number for each in steps if each.step.kind == "agent"]
    assert len(children) == 2
    assert by_parent.pop(0) == [("model", "scripted")] * 2
    assert sorted(by_parent.pop(1)) == [("agent", "child[1]"), ("agent", "child[2]")]
    for number in children:
        assert by_parent.pop(number) == [("model", "scripted")] * 2
    assert sorted(by_parent.values()) == [[("tool", "shelf__find")] * 2] * 2


async def test_a_question_to_another_agent_leads_to_its_run(fleet: Fleet) -> None:
    for agent, text in (("asker", "ask the peer"), ("router", "look for two")):
        before = fleet.hub.seq
        steps = await steps_of(fleet, agent, text)
        call = next(each for each in steps if each.step.kind == "agent")
        assert call.step.name == "plain"
        assert json.loads(call.request)["arguments"] == {"message": "look for two"}
        assert "book 2" in view_of(call.request, call.response).answer
        started = [each for each in fleet.hub.since(before).events if isinstance(each, RunStarted)]
        (below,) = [each for each in started if each.parent_span == call.step.span_id]
        assert below.agent == "plain"
        assert [kind for kind, _, _ in shape(await details(fleet, below.run_id))] == [
            "model",
            "tool",
            "tool",
            "model",
        ]


@pytest.mark.parametrize("agent", ["small", "far_small"])
async def test_a_summary_is_a_step_with_the_question_that_made_it(fleet: Fleet, agent: str) -> None:
    found: tuple[StepDetail, ...] = ()
    for _ in range(8):
        found = await steps_of(fleet, agent, "word " * 150, conversation_id=f"long-{agent}")
        if len(found) > 1:
            break
    summary, *questions, last = shape(found)
    assert (summary, last) == (("compaction", agent, 0), ("model", "scripted", 0))
    assert set(questions) == {("model", "scripted", 1)}
    assert [each.step.number for each in found] == list(range(1, len(found) + 1))
    assert json.loads(found[0].request)["arguments"]["messages"] >= 2
    assert view_of(found[0].request, found[0].response).answer == "a summary"
