"""Every value of the model survives the way to another process."""

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_fleet import desk
from support.properties import examples

from pallas.model import (
    AgentDetail,
    Event,
    Exchange,
    Fault,
    FaultType,
    FleetSnapshot,
    Notice,
    RunEvent,
    TextDelta,
    ToolOutcome,
    codec,
)
from pallas.model import event_types as event_module
from pallas.model import reload as reload_module
from pallas.model import verdict as verdict_module

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
for _kind in (float,):
    st.register_type_strategy(_kind, _NUMBERS)


def kinds() -> list[type[Event]]:
    """Every kind of event that the model has, found there and not in the table of the codec."""
    return [
        kind
        for kind in {**vars(event_module), **vars(reload_module), **vars(verdict_module)}.values()
        if isinstance(kind, type) and issubclass(kind, Event) and kind not in (Event, RunEvent)
    ]


def built(kind: type) -> st.SearchStrategy[Any]:
    """Values of a dataclass with every field drawn, those with a default too."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: _of(hints[field.name]) for field in dataclasses.fields(kind)})


def _of(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return built(hint)
    if hint == Mapping[str, Any]:
        return st.dictionaries(st.text("abc"), st.none() | st.integers(-9, 9) | st.text("xyz"), max_size=3)
    if origin is typing.get_origin(Mapping[str, int]):
        return st.dictionaries(*(_of(each) for each in arguments), max_size=3)
    if origin is tuple and arguments[-1] is ...:
        return st.lists(_of(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(_of(each) for each in arguments))
    if arguments and origin is not typing.Literal:  # a union
        return st.one_of(*(_of(each) for each in arguments))
    return st.from_type(hint)


def travelled(document: bytes) -> Any:
    """What arrives elsewhere: plain JSON, nothing of Python's own."""
    return json.loads(document)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@given(data=st.data())
@examples(25)
def test_every_event_comes_back_as_it_was(kind: type[Event], data: st.DataObject) -> None:
    event = data.draw(built(kind))
    there = codec.decode_event(travelled(codec.dumps(codec.encode_event(event))))
    assert there == event
    assert type(there) is kind


@pytest.mark.slow
@given(snapshot=built(FleetSnapshot))
@examples(40)
def test_every_snapshot_comes_back_as_it_was(snapshot: FleetSnapshot) -> None:
    assert codec.decode(FleetSnapshot, travelled(codec.encode(snapshot))) == snapshot


@pytest.mark.parametrize("kind", [AgentDetail, ToolOutcome])
@given(data=st.data())
@examples(25)
def test_what_is_looked_up_comes_back_as_it_was(kind: type, data: st.DataObject) -> None:
    value = data.draw(built(kind))
    assert codec.decode(kind, travelled(codec.encode(value))) == value


@given(wire=st.lists(built(Exchange), max_size=3).map(tuple))
@examples(25)
def test_exchanges_come_back_as_they_were(wire: tuple[Exchange, ...]) -> None:
    assert codec.decode(tuple[Exchange, ...], travelled(codec.encode(wire))) == wire


def test_the_table_holds_every_event_there_is() -> None:
    assert set(codec.EVENTS.values()) == set(kinds())


def test_what_a_newer_pallas_adds_is_left_out() -> None:
    document = travelled(codec.encode(desk()))
    document["mood"] = "good"
    document["agents"][0]["mood"] = "good"
    assert codec.decode(FleetSnapshot, document) == desk()
    assert codec.decode_event({"type": "MoodChanged", "seq": 3}) is None


@pytest.mark.parametrize(
    "document", [None, [], "x", {"name": "n"}, {"name": 1, "state": "running"}, {"state": "asleep"}]
)
def test_what_is_no_snapshot_is_refused_and_not_repeated(document: Any) -> None:
    with pytest.raises(codec.Undecodable) as refused:
        codec.decode(FleetSnapshot, document)
    assert "asleep" not in str(refused.value)


def test_an_event_that_is_none_is_refused() -> None:
    for document in (7, {"type": "TextDelta", "text": ["not", "text"]}):
        with pytest.raises(codec.Undecodable):
            codec.decode_event(document)


def test_text_that_no_encoder_takes_is_made_visible() -> None:
    event = Notice(level="info", text="half \ud83d of a sign")
    there = codec.decode_event(travelled(codec.dumps(codec.encode_event(event))))
    assert isinstance(there, Notice)
    assert there.text == "half \\ud83d of a sign"


def test_hostile_text_of_another_process_is_made_visible() -> None:
    hostile = {"type": "TextDelta", "run_id": "r\x1b[2J", "agent": "a\u202e", "text": "\x9b31m\nok"}
    there = codec.decode_event(codec.visible(hostile))
    assert isinstance(there, TextDelta)
    assert (there.run_id, there.agent, there.text) == ("r␛[2J", "a\\u202e", "\\x9b31m\nok")


@pytest.mark.parametrize("kind", FaultType)
def test_a_fault_comes_back_as_it_was(kind: FaultType) -> None:
    fault = Fault(kind, "no", retryable=True, data={"size": 3})
    there = codec.fault_of(travelled(codec.dumps(fault.to_body())), "otherwise")
    assert (there.type, there.message, there.code, there.retryable, dict(there.data)) == (
        kind,
        "no",
        fault.code,
        True,
        {"size": 3},
    )


@pytest.mark.parametrize("body", [None, [], {}, {"error": 3}, {"error": "x", "data": {"type": "ODD"}}])
def test_what_is_no_fault_becomes_one_that_says_so(body: Any) -> None:
    there = codec.fault_of(body, "it answered nonsense")
    assert (there.type, there.message) == (FaultType.INTERNAL, "it answered nonsense")
