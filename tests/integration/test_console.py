"""The console: what a person types, and what passes between handlers for it, in a fleet that runs."""

import asyncio
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from support.consoles import project
from support.live import running

from pallas.console.session import hold
from pallas.fleet.fleet import Fleet
from pallas.model import Event, MessagePassed, RunFinished

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with running(project(tmp_path_factory.mktemp("console") / "p")) as found:
        yield found


class Scripted:
    """A person who types these lines, whatever comes."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)
        self.shown: list[tuple[str, str]] = []
        self.asked: list[str] = []

    async def show(self, output: str, source: str) -> None:
        """Read it."""
        self.shown.append((source, output))

    async def read(self, to: str) -> str | None:
        """Type the next line."""
        self.asked.append(to)
        return self.lines.pop(0) if self.lines else None


async def held(fleet: Fleet, desk: Scripted) -> list[Event]:
    heard: list[Event] = []
    unlisten = fleet.hub.listen(heard.append)
    try:
        async with asyncio.timeout(60):
            await hold(fleet, desk, greeting="hello")
    finally:
        unlisten()
    return heard


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
    assert fleet.pump.open_frames == 0
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
    assert fleet.pump.open_frames == 0


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
    seen = sys.modules["code_of"].seen
    seen.clear()
    desks = [Scripted(f'@add {{"a": {number}, "b": 1000}}', None) for number in range(20)]
    async with asyncio.TaskGroup() as group:
        for desk in desks:
            group.create_task(hold(fleet, desk))
    for number, desk in enumerate(desks):
        assert str(1000 + number) in desk.shown[-1][1]
    assert len({thread for thread, _ in seen}) == 20
