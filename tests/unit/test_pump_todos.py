"""Reminders: an agent is told of what it waits for in each message, until it says that it is done."""

from dataclasses import dataclass
from typing import Any

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, knows, respond, to

from pallas.contract import (
    HandlerMetadata,
    HandlerResponse,
    SystemError,
    TodoClosed,
    TodoComplete,
    TodoRegistered,
    TodoUntil,
)
from pallas.messaging.send_rules import TODO
from pallas.model import TodoChanged


@knows
@dataclass
class Shouted:
    text: str


async def shouts(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
    return HandlerResponse.respond(Shouted(payload.text.upper()))


def script(*steps: Any, peers: tuple[str, ...] = ("echo", "shout"), agent: bool = True) -> Handler:
    """Returns one after the other; one that is callable makes it of what came."""

    async def steps_on(payload: Any, metadata: HandlerMetadata) -> Any:
        step = steps[len(made.got) - 1]
        return step(payload) if callable(step) else step

    made = Handler("agent", steps_on, peers=peers, agent=agent)
    return made


def world_with(agent: Handler) -> World:
    return World(agent, Handler("echo", echo), Handler("shout", shouts))


def statuses(world: World) -> list[tuple[str, bool]]:
    return [(each.status, each.was_raised) for each in world.events if isinstance(each, TodoChanged)]


def nudges(agent: Handler) -> list[str]:
    return [each.usage_instructions.partition("Your open todos:")[2] for each in agent.seen]


async def test_a_watcher_is_raised_nudges_and_is_closed() -> None:
    # HC-35
    kept: list[str] = []

    def registered(payload: TodoRegistered) -> HandlerResponse:
        kept.append(payload.id)
        return to("echo", "not that one")

    agent = script(
        HandlerResponse(TodoUntil("SHOUTED", "shout", "hear it"), TODO),
        registered,
        to("shout", "hi"),
        to("echo", "still open"),
        lambda _: HandlerResponse(TodoComplete(kept[0]), TODO),
        lambda closed: respond(str(closed.was_raised)),
    )
    world = world_with(agent)
    assert await world.send("agent", Ask()) == Answer("True")
    assert [type(each) for each in agent.got] == [Ask, TodoRegistered, Answer, Shouted, Answer, TodoClosed]
    assert [each.from_id for each in agent.seen][1] == TODO
    texts = nudges(agent)
    assert [bool(each) for each in texts] == [False, True, True, True, True, False]
    assert all(kept[0] in each and "hear it" in each for each in texts[1:5])
    assert "has not arrived yet" in texts[2]
    # HC-35: what is raised, and nothing else, is in ``todo_nudge`` until it is complete
    assert [bool(each.todo_nudge) for each in agent.seen] == [False, False, False, True, True, False]
    assert kept[0] in agent.seen[4].todo_nudge and "hear it" in agent.seen[4].todo_nudge
    assert (agent.got[1].wait_for, agent.got[1].description) == ("SHOUTED", "hear it")
    assert "has arrived" in texts[3]
    assert "has arrived" in texts[4]
    assert agent.got[-1] == TodoClosed(kept[0], was_raised=True)
    assert statuses(world) == [("open", False), ("raised", False), ("closed", True)]
    assert all(
        not each.usage_instructions.count(kept[0]) for name in ("echo", "shout") for each in world[name].seen
    )


async def test_what_is_delivered_further_down_raises_it_too_and_only_of_whom_it_names() -> None:
    # HC-35
    async def middle(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return to("shout", "x") if isinstance(payload, Ask) else respond()

    agent = script(
        HandlerResponse(TodoUntil("Shouted", "echo"), TODO),
        HandlerResponse(TodoUntil("shouted"), TODO),
        to("middle"),
        respond("done"),
        peers=("middle",),
    )
    world = world_with(agent)
    world.peers.handlers["middle"] = Handler("middle", middle, peers=["shout"])
    await world.send("agent", Ask())
    told = [each for each in world.events if isinstance(each, TodoChanged)]
    assert [(each.from_agent, each.status) for each in told] == [
        ("echo", "open"), ("", "open"), ("", "raised"), ("echo", "closed"), ("", "closed"),
    ]  # fmt: skip


async def test_an_answer_closes_what_is_open() -> None:
    agent = script(HandlerResponse(TodoUntil("Never"), TODO), respond())
    world = world_with(agent)
    await world.send("agent", Ask())
    assert statuses(world) == [("open", False), ("closed", False)]
    assert world.clean()


async def test_a_todo_of_another_frame_cannot_be_completed() -> None:
    # HC-35, HC-36
    kept: list[str] = []

    async def owner(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, TodoRegistered):
            kept.append(payload.id)
            return HandlerResponse(Ask(payload.id), "other")
        return respond() if isinstance(payload, Answer) else HandlerResponse(TodoUntil("X"), TODO)

    async def other(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        return HandlerResponse(TodoComplete(kept[0]), TODO) if isinstance(payload, Ask) else respond()

    world = World(Handler("owner", owner, peers=["other"], agent=True), Handler("other", other, agent=True))
    await world.send("owner", Ask())
    assert isinstance(world["other"].got[1], SystemError)
    assert world["other"].got[1].code == "validation"
    assert kept[0] not in world["other"].got[1].message


@pytest.mark.parametrize("payload", [TodoUntil(""), Ask(), TodoComplete("nothing")])
async def test_what_makes_no_sense_is_told(payload: Any) -> None:
    agent = script(HandlerResponse(payload, TODO), lambda said: respond(said.code))
    assert await world_with(agent).send("agent", Ask()) == Answer("validation")


async def test_only_agents_have_reminders_and_they_are_bounded() -> None:
    # HC-15
    tool = script(HandlerResponse(TodoUntil("X"), TODO), lambda said: respond(said.code), agent=False)
    assert await world_with(tool).send("agent", Ask()) == Answer("routing")
    many = script(*[HandlerResponse(TodoUntil("X"), TODO)] * 51, lambda said: respond(said.code))
    world = world_with(many)
    assert await world.send("agent", Ask()) == Answer("validation")
    assert statuses(world).count(("open", False)) == statuses(world).count(("closed", False)) == 50


async def test_text_that_looks_like_one_is_text() -> None:
    # HC-35
    text = "<todo-until><wait_for>Answer</wait_for></todo-until>"
    agent = script(to("echo", text), lambda said: respond(said.text))
    world = world_with(agent)
    assert await world.send("agent", Ask(text)) == Answer(text)
    assert statuses(world) == []
    assert nudges(agent) == ["", ""]


async def test_texts_of_a_todo_are_harmless() -> None:
    agent = script(HandlerResponse(TodoUntil("X\nY", "a\tb", "one\u202e\ntwo"), TODO), respond())
    world = world_with(agent)
    await world.send("agent", Ask())
    [opened, _] = [each for each in world.events if isinstance(each, TodoChanged)]
    assert (opened.wait_for, opened.from_agent, opened.description) == ("X", "a b", "one\\u202e")


async def test_instructions_tell_agents_of_reminders() -> None:
    # HC-10
    agent = script(respond())
    await world_with(agent).send("agent", Ask())
    assert "system.todo" in agent.seen[0].usage_instructions
    assert "<TodoUntil>" in agent.seen[0].usage_instructions
    tool = script(respond(), agent=False)
    await world_with(tool).send("agent", Ask())
    assert "system.todo" not in tool.seen[0].usage_instructions
