"""The console: what a person types, and what passes between handlers for it, in a fleet that runs."""

import asyncio
from pathlib import Path

import pytest
from support.consoles import Scripted, held, project
from support.live import module_fleet
from support.project_modules import module_at
from support.waiting import until

from pallas.console.console_handlers import MAX_LINE
from pallas.console.console_session import hold
from pallas.fleet.fleet import Fleet
from pallas.model import MessagePassed, RunFinished

pytestmark = pytest.mark.asyncio(loop_scope="module")


@module_fleet()
def fleet(folder: Path) -> Path:
    return project(folder / "p")


async def test_a_conversation_is_made_of_messages_between_handlers_alone(fleet: Fleet) -> None:
    # HC-26
    desk = Scripted('@add {"a": 2, "b": 3}', "@desk good morning", "and again", None)
    heard = await held(fleet, desk)
    assert desk.shown[0] == ("system", "hello")
    assert [source for source, _ in desk.shown[1:]] == ["add", "desk", "desk"]
    assert "5" in desk.shown[1][1]
    assert [output for _, output in desk.shown[2:]] == ["you said good morning", "you said and again"]
    assert desk.asked == ["", "add", "desk", "desk"]
    passed = [each for each in heard if isinstance(each, MessagePassed)]
    assert all(each.outcome == "delivered" for each in passed)
    kinds = [(each.sender, each.to, each.payload) for each in passed if each.route != "end"]
    assert kinds[:6] == [
        ("system.caller", "system.console", "ConsolePrompt"),
        ("system.console", "system.console.router", "ConsoleInput"),
        ("system.console.router", "add", "Add"),
        ("add", "system.console.router", "Sum"),
        ("system.console.router", "system.console", "ConsolePrompt"),
        ("system.console", "system.console.router", "ConsoleInput"),
    ]
    ended = [each for each in heard if isinstance(each, RunFinished) and each.agent == "system.console"]
    assert [each.outcome for each in ended] == ["ok"]


@pytest.mark.parametrize("leave", [None, "/quit", "/QUIT "])
async def test_it_ends_where_the_person_leaves(fleet: Fleet, leave: str | None) -> None:
    # HC-26, HC-5
    desk = Scripted(leave, "@add never")
    await held(fleet, desk)
    assert desk.lines == ["@add never"]
    assert fleet.messaging.open_frames == 0
    assert not fleet.peers.endpoints("system.console")


async def test_what_goes_wrong_is_said_and_the_conversation_goes_on(fleet: Fleet) -> None:
    desk = Scripted(
        "nobody yet", "@nobody hello", '@add {"a": "x"}', '@fail {"a": 1, "b": 2}', "/nonsense",
        '@add {"a": 1, "b": 1}',
    )  # fmt: skip
    await held(fleet, desk)
    said = [output for _, output in desk.shown[1:]]
    assert "@agent text" in said[0]
    assert "there is no agent nobody" in said[1]
    assert said[2].startswith("validation: ")
    assert "b" in said[2]
    assert said[3].startswith("upstream: ")
    assert "the reason" not in said[3]
    assert said[3].endswith("pallas.log says why)")  # which the handlers between are not told
    assert "no command /nonsense" in said[4]
    assert "2" in said[5]


async def test_an_agent_that_does_not_answer_does_not_end_the_console(fleet: Fleet) -> None:
    # HC-26
    desk = Scripted('@add {"a": -1, "b": 1}', '{"a": 1, "b": 1}', "/quit", "never")
    heard = await held(fleet, desk)
    assert desk.shown[1:] == [("system", "add ended without an answer"), ("add", '{"value": 2}')]
    assert desk.lines == ["never"]
    ended = [
        each.run_id for each in heard if isinstance(each, RunFinished) and each.agent == "system.console"
    ]
    assert len(ended) == len(set(ended)) == 2
    assert fleet.messaging.open_frames == 0


async def test_what_takes_too_long_is_stopped_and_the_conversation_goes_on(fleet: Fleet) -> None:
    # HC-26
    waits = fleet.project.root / "waits"
    waits.unlink(missing_ok=True)
    desk, stop = Scripted('@add {"a": 1, "b": 777}', '{"a": 1, "b": 1}', None), asyncio.Event()
    holding = asyncio.create_task(held(fleet, desk, stop))
    await until(waits.exists)
    stop.set()
    heard = await holding
    assert desk.shown[1:] == [("system", "add was stopped"), ("add", '{"value": 2}')]
    ended = [
        each.outcome for each in heard if isinstance(each, RunFinished) and each.agent == "system.console"
    ]
    assert ended == ["cancelled", "ok"]
    assert fleet.messaging.open_frames == 0


async def test_a_line_that_is_too_long_is_not_cut_but_asked_for_again(fleet: Fleet) -> None:
    desk = Scripted("@desk " + "x" * MAX_LINE, "@desk short")
    await held(fleet, desk)
    assert desk.shown[1] == (
        "system",
        "it has 1,000,006 characters, and at most 1,000,000 are sent; shorten it",
    )
    assert desk.shown[2:] == [("desk", "you said short")]


async def test_a_name_ends_where_a_space_of_any_kind_begins(fleet: Fleet) -> None:
    desk = Scripted("@desk\ttab", "@desk:\nline", "@ desk", "@", "/schema", "/schema @desk")
    await held(fleet, desk)
    said = [output for _, output in desk.shown[1:]]
    assert said[:2] == ["you said tab", "you said line"]
    assert all(each.startswith("name an agent: @agent text") for each in said[2:4])
    assert said[4:] == ["name an agent: /schema agent; /agents lists them", "desk takes text"]


async def test_its_commands_tell_who_is_there_and_what_they_take(fleet: Fleet) -> None:
    desk = Scripted("/agents", "/schema add", "/schema desk", "/status", "/help")
    await held(fleet, desk)
    agents, schema, text, status, helped = (output for _, output in desk.shown[1:])
    assert [line.split()[:3] for line in agents.splitlines()] == [
        ["desk", "llm", "ready"],
        ["add", "handler", "ready"],
        ["fail", "handler", "ready"],
    ]
    assert "Adds two numbers" in agents
    assert "<Add>" in schema
    assert text == "desk takes text"
    assert "running: 3 of 3" in status
    assert "/quit" in helped


async def test_twenty_consoles_never_mix(fleet: Fleet) -> None:
    # HC-19
    seen = module_at(fleet.project.root, "code_of").seen
    seen.clear()
    desks = [Scripted(f'@add {{"a": {number}, "b": 1000}}', None) for number in range(20)]
    async with asyncio.TaskGroup() as group:
        for desk in desks:
            group.create_task(hold(fleet, desk))
    for number, desk in enumerate(desks):
        assert str(1000 + number) in desk.shown[-1][1]
    assert len({thread for thread, _ in seen}) == 20
