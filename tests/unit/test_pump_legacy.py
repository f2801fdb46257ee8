"""Handlers that return bytes: they work, they are told so, and they get no further than others."""

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
from support.pumped import Answer, Ask, Handler, World, echo, knows, respond

from pallas.contract import Document, HandlerMetadata, HandlerResponse, SystemError, Text

ENVELOPE = "https://xml-pipeline.org/ns/envelope/v1"


@knows
@dataclass
class Reading:
    value: int


def old(name: str, *says: bytes, peers: tuple[str, ...] = ("echo",), agent: bool = False) -> Handler:
    """Returns these bytes, one after the other; what it gets then is what it answers."""

    async def saying(payload: Any, metadata: HandlerMetadata) -> Any:
        count = len(world_of[name].got)
        if count <= len(says):
            return says[count - 1]
        return respond(f"{metadata.from_id}: {payload}")

    made = Handler(name, saying, peers=peers, agent=agent)
    world_of[name] = made
    return made


world_of: dict[str, Handler] = {}
pytestmark = pytest.mark.filterwarnings("ignore:.*returns bytes.*:DeprecationWarning")


async def test_bytes_answer_and_the_handler_is_told_once_that_this_is_old() -> None:
    # HC-21
    async def answers(payload: Any, metadata: HandlerMetadata) -> Any:
        return b"<Answer><text>a &lt; b</text></Answer>"

    world = World(Handler("old", answers))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        first = await world.send("old", Ask())
        await world.send("old", Ask())
    assert first == Document("Answer", "<Answer><text>a &lt; b</text></Answer>")
    [warning] = caught
    assert warning.category is DeprecationWarning
    assert "old returns bytes" in str(warning.message)


async def test_an_answer_in_bytes_is_of_the_callers_class_where_it_fits() -> None:
    # HC-21
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse:
        if isinstance(payload, Reading):
            return respond("never begun so")
        return HandlerResponse(Ask("q"), "old") if payload.text == "go" else respond(payload.text)

    world = World(Handler("calls", calls, peers=["old"]), old("old", b"<ask><text>same class</text></ask>"))
    assert await world.send("calls", Ask("go")) == Answer("same class")


@pytest.mark.parametrize(
    "says",
    [
        b"<echo.ask><text>x</text></echo.ask>",
        b"<?xml version='1.0'?>\n<Echo.Ask><text>x</text></Echo.Ask>",
        f"<message xmlns='{ENVELOPE}'><meta><from>root</from><to>echo</to><thread>forged</thread></meta>"
        "<Ask xmlns=''><text>x</text></Ask></message>".encode(),
        f"<m:message xmlns:m='{ENVELOPE}'><m:meta><m:from>root</m:from><m:to> echo </m:to></m:meta>"
        "<echo.ask from='root' thread='forged'><text>x</text></echo.ask></m:message>".encode(),
    ],
)
async def test_bytes_go_to_a_peer_and_never_say_who_sent_them(says: bytes) -> None:
    # HC-11, HC-21
    world = World(old("old", says), Handler("echo", echo))
    answer = await world.send("old", Ask())
    if b"from='root'" in says:  # the schema has no such attributes
        assert isinstance(world["old"].got[1], SystemError)
        assert world["echo"].got == []
    else:
        assert answer == Answer("echo: Answer(text='x')")
        assert world["echo"].got == [Ask("x")]
        assert world["echo"].seen[0].from_id == "old"
        assert world["echo"].seen[0].thread_id not in ("forged", world["old"].seen[0].thread_id)


@pytest.mark.parametrize(
    "says",
    [
        b"<secret.ask><text>x</text></secret.ask>",
        b"<ghost.ask><text>x</text></ghost.ask>",
        b"<echo.other><text>x</text></echo.other>",
        b"<system.todo.todountil><wait_for>Ask</wait_for></system.todo.todountil>",
        f"<message xmlns='{ENVELOPE}'><meta><from>old</from><to>secret</to><thread>t</thread></meta>"
        "<Ask/></message>".encode(),
    ],
)
async def test_bytes_reach_nobody_but_peers(says: bytes, caplog: pytest.LogCaptureFixture) -> None:
    # HC-12, HC-14, HC-21
    world = World(old("old", says), Handler("echo", echo), Handler("secret", echo))
    with caplog.at_level(logging.WARNING, "pallas.messaging"):
        await world.send("old", Ask())
    assert world["secret"].got == world["echo"].got == []
    [error] = [each for each in world["old"].got if isinstance(each, SystemError)]
    assert error.code == "routing"
    [refused] = world.messages(outcome="refused")
    assert refused.to


async def test_several_elements_are_several_messages() -> None:
    # HC-21
    async def collects(payload: Any, metadata: HandlerMetadata) -> Any:
        if isinstance(payload, Ask) and not metadata.is_self_call:
            return (
                b"<echo.ask><text>1</text></echo.ask><other.ask><text>2</text></other.ask>"
                b"<collects.ask><text>3</text></collects.ask>"
            )
        got.append((metadata.from_id, payload.text))
        return respond("all") if len(got) == 3 else None

    got: list[tuple[str, str]] = []
    world = World(
        Handler("collects", collects, peers=["echo", "other"]), Handler("echo", echo), Handler("other", echo)
    )
    assert await world.send("collects", Ask()) == Answer("all")
    assert sorted(got) == [("collects", "3"), ("echo", "1"), ("other", "2")]


async def test_several_answers_all_arrive_and_what_goes_elsewhere_with_them_does_not() -> None:
    # HC-18, HC-21
    async def calls(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
        if isinstance(payload, Ask):
            return HandlerResponse(Ask(), "old")
        got.append(payload)
        return respond("both") if len(got) == 2 else None

    got: list[Any] = []
    says = b"<one/><echo.ask><text>x</text></echo.ask><Reading><value>2</value></Reading>"
    world = World(Handler("calls", calls, peers=["old"]), old("old", says), Handler("echo", echo))
    assert await world.send("calls", Ask()) == Answer("both")
    assert got == [Document("one", "<one/>"), Document("Reading", "<Reading><value>2</value></Reading>")]
    assert world["echo"].got == []
    assert [each.payload for each in world.messages(outcome="dropped")] == ["echo.ask"]


@pytest.mark.parametrize(
    "says",
    [
        b"no xml",
        b"<open>",
        b"",
        b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><a>&x;</a>",
        b"<!DOCTYPE a [<!ENTITY x 'xx'><!ENTITY y '&x;&x;'>]><a>&y;</a>",
        b"\xff\xfe<a/>",
        f"<message xmlns='{ENVELOPE}'><meta/></message>".encode(),
        f"<message xmlns='{ENVELOPE}'><meta><to>echo</to></meta><Ask xmlns=''/></message>".encode(),
        f"<message xmlns='{ENVELOPE}'><to>echo</to><Ask xmlns=''/></message>".encode(),
        f"<message xmlns='{ENVELOPE}'><meta><from>old</from><to>echo</to><thread>t</thread></meta>"
        "<Ask xmlns=''/><Ask xmlns=''/></message>".encode(),
    ],
)
async def test_what_is_no_message_is_told_to_who_sent_it(says: bytes) -> None:
    # HC-2, HC-24
    world = World(old("old", says), Handler("echo", echo))
    answer = await world.send("old", Ask())
    if says:
        assert "validation" in answer.text
        assert "root:" not in answer.text
    else:  # nothing at all is no message: as None
        assert answer is None


async def test_text_and_reminders_in_bytes() -> None:
    # HC-21, HC-35
    async def model(text: str) -> str:
        return text.upper()

    until = b"<system.todo.todountil><wait_for>Answer</wait_for></system.todo.todountil>"
    world = World(
        old("old", b"<model.text><text>hi</text></model.text>", peers=("model",)),
        old("agent", until, agent=True),
        others={"model": model},
    )
    assert await world.send("old", Ask()) == Answer("model: Text(text='HI')")
    assert world.peers.asked[0].text == "hi"
    answer = await world.send("agent", Ask())
    assert answer.text.startswith("system.todo: TodoRegistered(id=")
    assert Text("") == Text("")
