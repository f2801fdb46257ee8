"""Typed handlers whose code, classes and entries are saved while messages are under way."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio
from support.live import all_ready, ask_agent, running
from support.reloading import Saves
from support.typed import typed_project
from support.waiting import until

from pallas.model import Fault, RunFinished

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHAPES = """
from dataclasses import dataclass


@dataclass
class Question:
    text: str


@dataclass
class Answer:
    text: str
"""
FRONT = """
from pallas.contract import HandlerResponse, Text
from shapes import Answer, Question


async def front(payload, metadata):
    if isinstance(payload, Question):
        return HandlerResponse(payload, to="back")
    known = "mine" if isinstance(payload, Answer) else type(payload).__name__
    return HandlerResponse.respond(Text(f"{payload.text} ({known})"))
"""
BACK = """
import typed_gate as gate  # the test's own: it is not read anew with the project
from pallas.contract import HandlerResponse
from shapes import Answer, Question


async def back(payload, metadata):
    if payload.text.startswith("wait"):
        gate.reached.append(metadata.thread_id)
        await gate.opened.wait()
    return HandlerResponse.respond(Answer("VERSION " + payload.text))
"""
# Each message is a step: it waits for its gate where it is told to, and knows what the steps before it kept.
STEPS = """
import asyncio
from dataclasses import dataclass

import typed_gate as gate
from pallas.contract import HandlerResponse, Text, scratch


@dataclass
class Step:
    left: int
    wait: bool = False


async def steps(payload, metadata):
    scratch()["said"] = scratch().get("said", "") + "VERSION "
    if payload.wait:
        gate.reached.append(metadata.thread_id)
        await gate.opened.wait()
    if payload.left:
        return HandlerResponse(Step(payload.left - 1), to="steps")
    return HandlerResponse.respond(Text(scratch()["said"]))
"""
PARTS = {"shapes.py": SHAPES, "front.py": FRONT, "back.py": BACK.replace("VERSION", "one")}
ENTRIES: dict[str, dict[str, Any]] = {
    "front": {"handler": "front:front", "payload": "shapes:Question", "agent": True, "peers": ["back"]},
    "back": {"handler": "back:back", "payload": "shapes:Question"},
    "steps": {"handler": "steps:steps", "payload": "steps:Step"},
}


class Gate(ModuleType):
    """What handlers wait for, whichever version of them."""

    def __init__(self) -> None:
        super().__init__("typed_gate")
        self.opened = asyncio.Event()
        self.reached: list[str] = []


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """It is there for the handlers' import."""
    made = Gate()
    monkeypatch.setitem(sys.modules, "typed_gate", made)
    return made


@pytest_asyncio.fixture(loop_scope="module")
async def saves(gate: Gate, tmp_path: Path) -> AsyncIterator[Saves]:
    root: Path = typed_project(
        tmp_path / "project",
        "",
        ENTRIES,
        files={**PARTS, "steps.py": STEPS.replace("VERSION", "one")},
    )
    async with running(root, watch=True) as fleet:
        await until(lambda: all_ready(fleet))
        yield Saves(fleet, root)


async def step(saves: Saves, left: int, *, wait: bool = False) -> str:
    """What the versions said that took one step each."""
    answer = await ask_agent(saves.fleet, "steps", json.dumps({"left": left, "wait": wait}))
    said: str = json.loads(answer)["text"]
    return said


async def again(saves: Saves, change: Callable[[], None], *names: str) -> None:
    """Until these have another version after a change."""
    before = saves.versions()
    change()
    await until(lambda: all(saves.versions()[name] > before[name] for name in names))
    await until(lambda: not saves.busy())


async def test_an_answer_comes_in_the_receivers_version_of_its_class(saves: Saves) -> None:
    # HC-7
    assert await ask_agent(saves.fleet, "front", "hello") == "one hello (mine)"
    versions = saves.versions()
    await again(saves, lambda: saves.write("back.py", BACK.replace("VERSION", "two")), "back")
    assert saves.versions()["front"] == versions["front"]
    assert await ask_agent(saves.fleet, "front", "hello") == "two hello (mine)"
    assert await ask_agent(saves.fleet, "back", '{"text": "you"}') == '{"text": "two you"}'


async def test_a_message_under_way_is_finished_and_the_next_goes_to_the_new_version(
    saves: Saves, gate: Gate
) -> None:
    # HC-18
    run = asyncio.create_task(step(saves, 2, wait=True))
    await until(lambda: gate.reached)
    await again(saves, lambda: saves.write("steps.py", STEPS.replace("VERSION", "two")), "steps")
    assert await step(saves, 1) == "two two "
    gate.opened.set()
    assert await run == "one two two "


async def test_a_version_finishes_what_another_agents_run_asked_of_it(saves: Saves, gate: Gate) -> None:
    gate.opened.clear()
    gate.reached.clear()
    run = asyncio.create_task(ask_agent(saves.fleet, "front", "wait for me"))
    await until(lambda: gate.reached)
    await again(saves, lambda: saves.write("back.py", BACK.replace("VERSION", "after")), "back")
    assert await ask_agent(saves.fleet, "front", "hello") == "after hello (mine)"
    assert not run.done()
    gate.opened.set()
    assert (await run).endswith(" wait for me (mine)")
    assert not (await run).startswith("after")
    await again(saves, lambda: saves.write("back.py", BACK.replace("VERSION", "two")), "back")


async def test_peers_count_from_the_next_message_on_and_need_no_other_version(saves: Saves) -> None:
    # HC-15
    versions = saves.versions()

    def without(entries: dict[str, Any]) -> None:
        entries["agents"]["front"]["peers"] = []

    saves.edit("agents.yaml", without)
    found = next(each for each in saves.fleet.agents if each.name == "front")
    await until(lambda: found.config.peers == ())
    with pytest.raises(Fault):  # its handler knows no SystemError: it has no text
        await ask_agent(saves.fleet, "front", "hello")
    saves.edit("agents.yaml", lambda entries: entries["agents"]["front"].update(peers=["back"]))
    await until(lambda: found.config.peers == ("back",))
    assert (await ask_agent(saves.fleet, "front", "hello")).endswith("hello (mine)")
    assert saves.versions() == versions


async def test_a_changed_class_is_what_is_asked_for_from_then_on(saves: Saves) -> None:
    changed = SHAPES.replace(
        "class Question:\n    text: str", "class Question:\n    text: str\n    loud: bool"
    )
    await again(saves, lambda: saves.write("shapes.py", changed), "front", "back")
    with pytest.raises(Fault, match="loud"):
        await ask_agent(saves.fleet, "back", '{"text": "you"}')
    assert await ask_agent(saves.fleet, "back", '{"text": "you", "loud": true}') == '{"text": "one you"}'
    found = await saves.fleet.describe("front")
    assert found.payload is not None
    assert "loud" in json.loads(found.payload.input_schema)["required"]
    await again(saves, lambda: saves.write("shapes.py", SHAPES), "front", "back")


async def test_a_mistake_is_told_with_its_place_and_the_version_before_goes_on(saves: Saves) -> None:
    # HC-1
    wrong = STEPS.replace("async def steps(payload, metadata)", "async def steps(payload)")
    after = max((each.seq for each in saves.told()), default=0)
    saves.write("steps.py", wrong)
    told = await saves.outcome("steps", after)
    assert told.outcome == "failed"
    line = wrong.splitlines().index("async def steps(payload):") + 1
    assert f"steps.py:{line}: handler steps:steps of steps takes only payload and no metadata" in told.error
    assert await step(saves, 0) == "one "
    await again(saves, lambda: saves.write("steps.py", STEPS.replace("VERSION", "three")), "steps")
    assert await step(saves, 0) == "three "


async def test_another_time_in_its_entry_is_another_version(saves: Saves, gate: Gate) -> None:
    def hurry(entries: dict[str, Any]) -> None:
        entries["agents"]["steps"]["timeout"] = 0.1

    gate.opened.clear()
    await again(saves, lambda: saves.edit("agents.yaml", hurry), "steps")
    with pytest.raises(Fault, match="time"):
        await step(saves, 0, wait=True)


@pytest.mark.slow
async def test_no_message_is_lost_while_handlers_are_exchanged_under_traffic(saves: Saves) -> None:
    said: list[str] = []
    over = False

    async def caller(number: int) -> None:
        while not over:
            said.append(await ask_agent(saves.fleet, "front", f"{number}"))
            await asyncio.sleep(0)

    finished: list[RunFinished] = []
    unlisten = saves.fleet.hub.listen(
        lambda event: finished.append(event) if isinstance(event, RunFinished) else None
    )
    callers = [asyncio.create_task(caller(number)) for number in range(4)]
    try:
        await until(partial(_anybody, said, "one"))
        for version in ("red", "green", "blue"):
            code = BACK.replace("VERSION", version)
            await again(saves, partial(saves.write, "back.py", code), "back")
            await until(partial(_anybody, said, version))
        await again(saves, lambda: saves.write("front.py", FRONT + "\n# changed\n"), "front")
    finally:
        over = True
        await asyncio.gather(*callers)
        unlisten()
    assert {each.outcome for each in finished} == {"ok"}
    assert {each.split()[0] for each in said} == {"one", "red", "green", "blue"}
    assert all(each.endswith("(mine)") for each in said)
    assert saves.fleet.messaging.open_frames == 0


def _anybody(said: list[str], version: str) -> bool:
    return any(each.startswith(version) for each in said)
