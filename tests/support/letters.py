"""Messages between handlers, as envelopes and as events: a greeter that asks a shouter and a model."""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final
from uuid import UUID, uuid5

from pallas.model import Envelope, Event, MessagePassed, RunFinished, RunStarted, TodoChanged, ToolEvent

from .fake_fleet import NOON

RUN: Final = "7f3a9c01"
_SPACE: Final = UUID("3f9e059e-9dc1-40e2-8000-000000000001")
_FIELDS: Final = frozenset(each.name for each in fields(MessagePassed))


def frame(name: str) -> str:
    """The UUID of a frame that a test calls so."""
    return str(uuid5(_SPACE, name)) if name else ""


def xml(sender: str, to: str, thread: str, payload: str) -> str:
    """A whole envelope."""
    return (
        '<message xmlns="https://xml-pipeline.org/ns/envelope/v1"><meta>'
        f"<from>{sender}</from><to>{to}</to><thread>{thread}</thread></meta>{payload}</message>"
    )


def letter(number: int, sender: str, to: str, *, run: str = RUN, at: str = "a", **more: Any) -> Envelope:
    """A message that was delivered in frame ``at`` unless ``more`` says otherwise."""
    body = more.pop("body", f"<Note xmlns=''><text>message {number}</text></Note>")
    given: dict[str, Any] = {
        "run_id": run,
        "agent": "greeter",
        "number": number,
        "at": NOON + number / 10,
        "sender": sender,
        "to": to,
        "frame": frame(at),
        "route": "call",
        "outcome": "delivered",
        "payload": "Note",
        "seconds": 0.02,
        "xml": xml(sender, to, frame(at), body),
        **more,
    }
    given["parent"], given["left"] = frame(given.get("parent", "")), frame(given.get("left", ""))
    return Envelope(**given)


def passed(number: int, sender: str, to: str, **more: Any) -> MessagePassed:
    """The event of such a message."""
    span = more.pop("span_id", "")
    return event_of(letter(number, sender, to, **more), span)


def event_of(letter: Envelope, span_id: str = "") -> MessagePassed:
    """The event that tells of an envelope."""
    known = {
        each.name: getattr(letter, each.name) for each in fields(letter) if each.name in _FIELDS - {"seq"}
    }
    return MessagePassed(**known, size=len(letter.xml), span_id=span_id)


def greeting(run: str = RUN) -> tuple[Envelope, ...]:
    """A run that greets: it asks a handler, is refused, asks a model, goes on by itself, and answers."""
    hello = "<Greeting xmlns=''><name>Ada &amp; Grace</name><times>2</times></Greeting>"
    shout = "<Shout xmlns=''><text>hello Ada</text></Shout>"
    loud = "<Shouted xmlns=''><text>HELLO ADA</text></Shouted>"
    wrong = "<SystemError xmlns=''><code>routing</code><message>Message could not be delivered. Please "
    wrong += "verify your target and try again.</message><retry-allowed>true</retry-allowed></SystemError>"
    why = "greeter has no peer vault: its peers are shouter, research"
    return (
        letter(1, "system.caller", "greeter", run=run, body=hello, payload="Greeting", parent="root"),
        letter(2, "greeter", "shouter", run=run, at="b", parent="a", body=shout, payload="Shout"),
        letter(
            3, "shouter", "greeter", run=run, route="respond", left="b", parent="root", body=loud,
            payload="Shouted", seconds=0.004,
        ),
        letter(
            4, "greeter", "vault", run=run, body=shout, payload="Shout", outcome="refused", code="routing",
            detail=why, seconds=None, parent="root",
        ),
        letter(
            5, "system", "greeter", run=run, route="error", body=wrong, payload="SystemError", parent="root"
        ),
        letter(6, "greeter", "research", run=run, at="c", parent="a", payload="Text", seconds=1.9),
        letter(7, "research", "greeter", run=run, route="respond", left="c", parent="root", payload="Text"),
        letter(8, "greeter", "greeter", run=run, route="self", body=hello, payload="Greeting", parent="root"),
        letter(
            9, "greeter", "system.caller", run=run, route="result", at="root", left="a", body=loud,
            payload="Shouted", seconds=None,
        ),
    )  # fmt: skip


def told(letters: Iterable[Envelope], run: str = RUN, ends: bool = True) -> list[Event]:
    """All that the fleet says of such a run: its frames as calls, and a run of a model below one of them."""
    of = {"run_id": run, "agent": "greeter"}
    said: list[Event] = [
        RunStarted(at=NOON, preview="Greet Ada twice", caller="claude code", span_id=f"{run}-1", **of)
    ]
    for each in letters:
        opens = each.route == "call" and each.number > 1 and each.outcome == "delivered"
        span = f"{run}-{each.frame[:4]}" if opens else ""
        if opens:
            call = {"server": each.to, "tool": each.payload, "call_id": each.frame, "span_id": span}
            said.append(ToolEvent(at=each.at, phase="started", **call, **of))  # type: ignore[arg-type]
        said.append(event_of(each, span))
        if opens and each.to == "research":
            asked = {"run_id": f"{run}-llm", "agent": "research"}
            said += [
                RunStarted(at=each.at, preview="Who is Ada?", parent_span=span, **asked),
                RunFinished(at=each.at + 1.9, outcome="ok", seconds=1.9, **asked),
            ]
        if each.left and each.route == "respond":
            call = {"server": each.sender, "tool": each.payload, "call_id": each.left}
            said.append(ToolEvent(at=each.at, phase="completed", **call, **of))  # type: ignore[arg-type]
    if ends:
        said.append(RunFinished(at=NOON + 3, outcome="ok", seconds=3.0, **of))
    return said


def todo(name: str, status: str = "open", **more: Any) -> TodoChanged:
    """Something that a handler waits for."""
    given: dict[str, Any] = {
        "at": NOON - 60,
        "run_id": RUN,
        "agent": "greeter",
        "actor": "greeter",
        "frame": frame("a"),
        "wait_for": "Shouted",
        "from_agent": "shouter",
        "description": "the greeting is to be shouted first",
        **more,
    }
    return TodoChanged(todo=name, status=status, **given)  # type: ignore[arg-type]
