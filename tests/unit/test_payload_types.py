"""A class of messages as it is registered: what is allowed, and what is said of the rest (HC-23)."""

from __future__ import annotations

import dataclasses
import enum
import gc
import json
import threading
import weakref
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, NewType, Optional

import jsonschema
import pytest
from lxml import etree

from pallas import contract
from pallas.model import Fault, FaultType
from pallas.payloads import PayloadFault, PayloadType

Sku = NewType("Sku", str)
type Amount = int


class Colour(enum.StrEnum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    """A part."""

    sku: Annotated[Sku, "what is ordered"]
    count: Amount = 1


@dataclass
class Order:
    """What somebody orders."""

    SHOP: ClassVar[str] = "corner"
    id: int
    lines: list[Line]
    note: Optional[str] = "none"  # noqa: UP045
    colour: Colour = Colour.RED
    way: Literal["air", "sea"] = field(default="air", metadata={"description": "how it travels"})
    tags: list[str] = field(default_factory=lambda: ["new"])
    first: Line | None = None


ORDER = PayloadType.of(Order)
FULL = Order(1, [Line(Sku("a"), 2), Line(Sku("b"))], None, Colour.BLUE, "sea", [], Line(Sku("c")))


def test_a_class_has_a_key_a_name_and_is_read_once() -> None:
    assert (ORDER.key, ORDER.name) == (f"{__name__}:Order", "Order")
    assert PayloadType.of(Order) is ORDER


def test_a_message_as_xml_is_what_the_class_says() -> None:
    # HC-23
    assert (
        PayloadType.of(Line).pack(Line(Sku('<&">'), 3)).xml
        == b'<Line><sku>&lt;&amp;"&gt;</sku><count>3</count></Line>'
    )
    payload = ORDER.pack(FULL)
    assert ORDER.bind(payload, Order) == FULL
    assert etree.XMLSchema(etree.fromstring(ORDER.xsd)).validate(etree.fromstring(payload.xml))
    assert ORDER.values(payload) == {
        "id": 1,
        "lines": [{"sku": "a", "count": 2}, {"sku": "b", "count": 1}],
        "note": None,
        "colour": "blue",
        "way": "sea",
        "tags": [],
        "first": {"sku": "c", "count": 1},
    }


def test_what_is_left_out_is_as_the_class_has_it() -> None:
    # HC-23
    bare = ORDER.parse(b"<Order><id>7</id></Order>")
    assert ORDER.bind(bare, Order) == Order(7, [])
    assert ORDER.bind(ORDER.pack({"id": 7}), Order) == Order(7, [])
    assert ORDER.values(bare)["tags"] == ["new"]
    assert ORDER.values(bare)["tags"] is not ORDER.values(bare)["tags"]


def test_the_json_schema_says_what_the_class_and_its_notes_say() -> None:
    # HC-23
    schema = ORDER.json_schema
    jsonschema.Draft202012Validator.check_schema(schema)
    assert (schema["type"], schema["required"], schema["description"]) == (
        "object",
        ["id"],
        "What somebody orders.",
    )
    assert schema["properties"]["lines"]["items"]["properties"]["sku"]["description"] == "what is ordered"
    assert schema["properties"]["way"] == {
        "type": "string",
        "enum": ["air", "sea"],
        "description": "how it travels",
        "default": "air",
    }
    jsonschema.validate(ORDER.example_json, schema)
    assert ORDER.values(ORDER.parse(ORDER.example.encode())) == ORDER.example_json


def test_every_class_of_the_contract_is_a_payload_and_a_refusal_is_written_as_specified() -> None:
    # HC-13
    for name in contract.__all__:
        kind = getattr(contract, name)
        if isinstance(kind, type) and kind not in (contract.HandlerMetadata, contract.HandlerResponse):
            assert PayloadType.of(kind).example
    fault = Fault(FaultType.PROTOCOL, "no", data={"system": "routing"})
    told = contract.SystemError(fault.system_code, fault.system_message, fault.system_retryable)
    assert PayloadType.of(contract.SystemError).pack(told).xml.decode() == (
        "<SystemError><code>routing</code>"
        "<message>Message could not be delivered. Please verify your target and try again.</message>"
        "<retry-allowed>true</retry-allowed></SystemError>"
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (contract.Text, "text"),
        (Line, "sku"),
        (Order, None),
        (contract.Boot, "project"),
        (contract.ConsolePrompt, None),
    ],
)
def test_plain_text_goes_to_the_one_field_that_needs_it(kind: type, expected: str | None) -> None:
    assert PayloadType.of(kind).text_field == expected


class _NoDataclass:
    pass


@dataclass
class _Recursive:
    inner: list[_Recursive]


@dataclass
class _Unknown:
    a: Nowhere  # type: ignore[name-defined]  # noqa: F821


@dataclass
class _WithInit:
    a: int
    b: dataclasses.InitVar[int]


@dataclass
class _Twice:
    ELEMENTS: ClassVar = {"a": "b"}
    a: int
    b: int


@dataclass
class _BadName:
    ELEMENTS: ClassVar = {"a": "not a name"}
    a: int


class _Flags(enum.Flag):
    A = 1


def _of(hint: Any, default: Any = dataclasses.MISSING) -> type:
    made = dataclasses.field() if default is dataclasses.MISSING else dataclasses.field(default=default)
    return dataclasses.make_dataclass("Bad", [("a", hint, made)])


def _deep(levels: int) -> type:
    made = dataclasses.make_dataclass("Level", [("a", int)])
    for _ in range(levels):
        made = dataclasses.make_dataclass("Level", [("a", made)])
    return made


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (_NoDataclass, "_NoDataclass cannot be a payload: it is not a dataclass"),
        (_Recursive, "_Recursive cannot be a payload: it contains itself"),
        (_Unknown, "_Unknown cannot be a payload: its annotations cannot be resolved: name 'Nowhere'"),
        (_WithInit, "_WithInit.b cannot be in a payload: an InitVar"),
        (_Twice, "_Twice.b: two fields have the element b"),
        (_BadName, "_BadName.a: not a name is not a valid XML name"),
        (_deep(20), "more than 8 dataclasses inside one another"),
        (dataclasses.make_dataclass("Wide", [(f"a{n}", int) for n in range(500)]), "more than 400 fields"),
        (dataclasses.make_dataclass("Late", [("a", int, dataclasses.field(init=False))]), "Late.a cannot be"),
        (_of(dict), "Bad.a cannot be in a payload: dict is not a type"),
        (_of(dict[str, int]), "dict[str, int] is not a type"),
        (_of(Any), "Any is not a type"),
        (_of(object), "object is not a type"),
        (_of(bytes), "bytes is not a type"),
        (_of(tuple[int, str]), "tuple[int, str] is not a type"),
        (_of(int | str), "allows several types"),
        (_of(int | str | None), "allows several types"),
        (_of(None), "is not a type"),
        (_of(list), "a list needs the type of its items"),
        (_of(list[int] | None), "a list is empty rather than None"),
        (_of(list[int | None]), "is not a type"),
        (_of(list[list[int]]), "is not a type"),
        (_of(Literal["a", 1]), "must all be str or all int"),
        (_of(Literal["a\x00"]), "XML"),
        (_of(_Flags), "_Flags is not a type"),
        (_of(enum.Enum("Mixed", {"A": 1.5})), "must all be str or all int"),
        (_of(str, None), "its default is null, expected text: write `X | None`"),
        (_of(int, "1"), 'its default is "1", expected a whole number'),
        (_of(float, float("nan")), "its default is nan, expected a finite number"),
        (Order(1, []), "not a class"),
        ("Order", "not a class"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_payload_is_refused_with_class_field_and_reason(kind: Any, said: str) -> None:
    # HC-23
    with pytest.raises(Fault) as told:
        PayloadType.of(kind)
    assert told.value.type is FaultType.CONFIG
    assert said in told.value.message
    if "in a payload" in told.value.message:
        assert "allowed are str, int, float, bool" in told.value.message


@pytest.mark.parametrize(
    "change",
    [
        {"key": 5},
        {"key": "a" * 2_000},
        {"shape": None},
        {"shape": []},
        {"shape": {"name": "A"}},
        {"shape": {"name": "not a name", "fields": []}},
        {"shape": {"name": 1, "fields": []}},
        {"shape": {"name": "A", "fields": [1]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "eval"}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": ["str"]}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "str"}] * 2}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "str", "choices": [["x"]]}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "str", "choices": 5}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "str", "choices": ["\x00"]}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "int", "choices": ["x"]}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "int", "choices": [1], "known": True}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "int", "known": True, "default": "x"}]}},
        {"shape": {"name": "A", "fields": [{"name": "a", "type": "int", "many": True, "optional": True}]}},
    ],
)
def test_a_description_from_another_process_is_believed_nothing(change: dict[str, Any]) -> None:
    with pytest.raises(PayloadFault, match="describes no class of messages"):
        PayloadType.from_json({**ORDER.to_json(), **change})
    with pytest.raises(PayloadFault, match="it is not an object"):
        PayloadType.from_json([])  # type: ignore[arg-type]
    nested: dict[str, Any] = {"name": "A", "fields": []}
    for _ in range(5_000):
        nested = {"name": "A", "fields": [{"name": "a", "type": nested}]}
    with pytest.raises(PayloadFault):
        PayloadType.from_json({"key": "a:A", "shape": nested})


def test_a_message_of_an_older_version_of_a_class_is_checked_for_the_newer() -> None:
    # HC-2
    older = dataclasses.make_dataclass("Add", [("a", int), ("b", int)])
    alike = dataclasses.make_dataclass("Add", [("a", int), ("b", int)])
    newer = dataclasses.make_dataclass(
        "Add", [("a", int), ("b", int), ("c", str, dataclasses.field(default="x"))]
    )
    other = dataclasses.make_dataclass("Add", [("a", str)])
    payload = PayloadType.of(older).pack(older(1, 2))

    assert PayloadType.of(older).bind(payload, alike) == alike(1, 2)
    assert PayloadType.of(newer).bind(payload, newer) == newer(1, 2, "x")
    assert PayloadType.of(newer).pack(newer(1, 2, "y"))
    with pytest.raises(PayloadFault, match=r'Add has no element "b"'):
        PayloadType.of(other).bind(payload, other)


def test_an_old_version_of_a_class_goes_when_nobody_uses_it() -> None:
    kind = dataclasses.make_dataclass("Old", [("a", int)])
    payload = PayloadType.of(kind).pack(kind(1))
    gone = weakref.ref(kind)
    del kind
    gc.collect()
    assert gone() is None
    assert payload.type.values(payload) == {"a": 1}


def test_what_a_class_itself_refuses_is_a_refusal_without_its_text() -> None:
    @dataclass
    class Positive:
        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise RuntimeError("secret of the class")

    made = PayloadType.of(Positive)
    with pytest.raises(PayloadFault) as told:
        made.bind(made.pack({"a": -1}), Positive)
    assert "secret" not in told.value.message
    assert isinstance(told.value.__cause__, RuntimeError)


def test_more_attributes_of_an_instance_are_not_carried() -> None:
    # HC-11
    line = Line(Sku("a"))
    line.thread = "forged"  # type: ignore[attr-defined]
    assert json.loads(PayloadType.of(Line).write(PayloadType.of(Line).pack(line), "json")) == {
        "sku": "a",
        "count": 1,
    }


def test_one_type_serves_many_threads() -> None:
    made = PayloadType.of(Line)
    kept = made.pack(Line(Sku("kept")))
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(300):
            value = Line(Sku(f"<{turn}>"), number)
            again = made.parse(made.pack(value).xml)
            if made.bind(again, Line) != value or made.bind(made.adopt(kept.element), Line).sku != "kept":
                wrong.append(turn)
            try:
                made.parse(b"<Line><sku>a</sku><count>x</count></Line>")
                wrong.append("taken")
            except PayloadFault as fault:
                if fault.data["field"] != "count":
                    wrong.append(fault)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)
