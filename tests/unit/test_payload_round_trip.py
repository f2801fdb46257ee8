"""Any value of any class that is allowed is the same after its way through XML and JSON (HC-23)."""

import dataclasses
import enum
import json
import keyword
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal

import jsonschema
import pytest
import xmlschema
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from lxml import etree
from support.properties import examples

from pallas.payloads import Payload, PayloadFault, PayloadType, read_text


class Size(enum.Enum):
    """A choice of texts."""

    SMALL = "s <&>"
    LARGE = "l"


class Level(enum.IntEnum):
    """A choice of numbers."""

    LOW = 1
    HIGH = -7


_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
    | st.sampled_from("\r\n\t <&>\"']\x7f\x85\u2028😀"),
    max_size=12,
) | st.just("]]><!-- --><?x?>&#13;")
_ZONES = st.none() | st.just(UTC) | st.integers(-839, 839).map(lambda m: timezone(timedelta(minutes=m)))
# Each type with what its values are.
_PLAIN: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (str, _TEXT),
    (int, st.integers() | st.integers(-(10**300), 10**300)),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (Literal["a", " b "], st.sampled_from(["a", " b "])),
    (Literal[1, 2], st.sampled_from([1, 2])),
    (Size, st.sampled_from(Size)),
    (Level, st.sampled_from(Level)),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30)),
    (date, st.dates()),
    (datetime, st.datetimes(timezones=_ZONES)),
]
_NAMES = st.from_regex(r"[a-zA-Zäß_][a-zA-Z0-9äß_]{0,8}", fullmatch=True).filter(
    lambda n: not keyword.iskeyword(n)
)
_SETTINGS = examples(120, suppress_health_check=list(HealthCheck))


@st.composite
def _field(draw: st.DrawFn, depth: int) -> tuple[Any, st.SearchStrategy[Any], Any]:
    if depth and draw(st.integers(0, 4)) == 0:
        hint: Any = draw(_classes(depth - 1))
        values = _instances(hint)
    else:
        hint, values = draw(st.sampled_from(_PLAIN))
    form = draw(st.sampled_from(["plain", "plain", "optional", "list"]))
    if form == "list":
        hint, values = list[hint], st.lists(values, max_size=4)
    elif form == "optional":
        hint, values = hint | None, st.none() | values
    how = draw(st.sampled_from(["none", "none", "default", "factory"]))
    if how == "none":
        return hint, values, dataclasses.field(kw_only=True)
    value = draw(values)
    if how == "factory" or form == "list" or dataclasses.is_dataclass(value):
        return hint, values, dataclasses.field(kw_only=True, default_factory=lambda: value)
    return hint, values, dataclasses.field(kw_only=True, default=value)


@st.composite
def _classes(draw: st.DrawFn, depth: int = 2) -> type:
    names = draw(st.lists(_NAMES, max_size=5, unique=True))
    fields = [(name, *draw(_field(depth))) for name in names]
    made = dataclasses.make_dataclass(
        draw(_NAMES), [(name, hint, default) for name, hint, _, default in fields]
    )
    made.values_ = {name: values for name, _, values, _ in fields}  # type: ignore[attr-defined]
    return made


def _instances(kind: Any) -> st.SearchStrategy[Any]:
    return st.fixed_dictionaries(kind.values_).map(lambda values: kind(**values))


@pytest.mark.slow
@_SETTINGS
@given(st.data())
def test_every_value_of_every_class_comes_back_equal(data: st.DataObject) -> None:
    # HC-23
    kind = data.draw(_classes())
    value = data.draw(_instances(kind))
    made = PayloadType.of(kind)

    payload = made.pack(value)

    assert made.bind(payload, kind) == value
    assert made.bind(made.parse(payload.xml), kind) == value
    assert made.bind(made.adopt(payload.element), kind) == value
    values = json.loads(json.dumps(made.values(payload), allow_nan=False))
    assert made.bind(made.pack(values), kind) == value
    assert made.bind(read_text(made, json.dumps(values))[0], kind) == value
    assert made.bind(read_text(made, made.write(payload, "xml"))[0], kind) == value


@pytest.mark.slow
@_SETTINGS
@given(st.data())
def test_what_is_said_of_a_class_to_another_process_is_all_that_is_needed_there(data: st.DataObject) -> None:
    # HC-23
    kind = data.draw(_classes())
    value = data.draw(_instances(kind))
    made = PayloadType.of(kind)
    there = PayloadType.from_json(json.loads(json.dumps(made.to_json())))

    assert there.same(made)
    assert (there.xsd, there.json_schema, there.example) == (made.xsd, made.json_schema, made.example)
    payload = there.pack(made.values(made.pack(value)))
    assert there.pack(value).xml == made.pack(value).xml
    assert made.bind(payload, kind) == value
    assert there.values(made.pack(value)) == made.values(made.pack(value))


@pytest.mark.slow
@_SETTINGS
@given(st.data())
def test_schemas_and_example_hold_for_others_than_the_one_who_made_them(data: st.DataObject) -> None:
    # HC-23
    kind = data.draw(_classes())
    value = data.draw(_instances(kind))
    made = PayloadType.of(kind)
    payload = made.pack(value)
    second = xmlschema.XMLSchema(made.xsd)
    check = jsonschema.Draft202012Validator(made.json_schema)
    jsonschema.Draft202012Validator.check_schema(made.json_schema)

    assert second.is_valid(etree.fromstring(payload.xml))
    check.validate(made.values(payload))
    assert second.is_valid(etree.fromstring(made.example))
    check.validate(made.example_json)
    assert made.values(made.parse(made.example.encode())) == made.values(made.pack(made.example_json))


@dataclasses.dataclass
class Line:
    """A part."""

    name: str
    count: int = 1


@dataclasses.dataclass
class Sheet:
    """Something of each kind."""

    number: int
    ratio: float
    ready: bool
    way: Literal["air", "sea"]
    note: str | None = "x"
    lines: list[Line] = dataclasses.field(default_factory=list)


_SHEET = PayloadType.of(Sheet)
_SECOND = xmlschema.XMLSchema(_SHEET.xsd)
# Not among them are 1_0 and digits of other scripts: Python takes them for numbers, and so does xmlschema.
_LEXICAL = st.sampled_from(
    [
        "",
        " 1 ",
        "01",
        "+5",
        "-0",
        "1.0",
        ".5",
        "5.",
        "1e3",
        "1E-3",
        "0x10",
        "true",
        "1",
        "0",
        "True",
        "air",
        "sea",
    ]
) | st.sampled_from([" air", "air sea", "--1", "1 2", "e5", "yes", "\n1\n", "1f", "1L", "-.5e+2"])


@pytest.mark.slow
@examples(300)
@given(
    st.lists(
        st.tuples(st.sampled_from(["number", "ratio", "ready", "way", "note", "lines", "other"]), _LEXICAL),
        max_size=7,
    ),
    st.booleans(),
)
def test_what_is_taken_is_what_another_xsd_library_takes(parts: list[tuple[str, str]], whole: bool) -> None:
    # HC-2
    if whole:
        order = ["number", "ratio", "ready", "way"]
        given_ = dict(parts)
        parts = [(name, given_.get(name, {"ready": "1", "way": "air"}.get(name, "7"))) for name in order]
    root = etree.Element("Sheet")
    for name, text in parts:
        etree.SubElement(root, name).text = text

    assert _taken(etree.tostring(root)) is _SECOND.is_valid(root)


@pytest.mark.slow
@examples(300)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.none()
            | st.booleans()
            | st.integers(-9, 9)
            | st.sampled_from([1.0, 1.5, "1", "air", [], {}, [{}]])
            for name in ("number", "ratio", "ready", "way", "note", "lines", "other")
        },
    )
)
def test_what_is_taken_as_json_is_what_the_json_schema_allows(values: dict[str, Any]) -> None:
    # HC-23
    allowed = jsonschema.Draft202012Validator(_SHEET.json_schema).is_valid(values)
    try:
        _SHEET.pack(values)
    except PayloadFault:
        assert not allowed
    else:
        assert allowed


def _taken(xml: bytes) -> bool:
    try:
        assert isinstance(_SHEET.parse(xml), Payload)
    except PayloadFault:
        return False
    return True


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@examples(300)
@given(
    st.fixed_dictionaries({field.name: _ANY for field in dataclasses.fields(Sheet)}),
    st.sampled_from([Sheet, dict]),
)
def test_values_of_any_kind_are_carried_exactly_or_refused_by_name(values: dict[str, Any], kind: Any) -> None:
    # HC-2
    try:
        payload = _SHEET.pack(kind(**values))
    except PayloadFault as fault:
        assert fault.data["field"].split("[")[0].split(".")[0] in values
        assert "\n" not in fault.message
        assert len(fault.message) <= 400
    else:
        assert _SHEET.bind(payload, Sheet) == Sheet(**values) or kind is dict


def test_numbers_are_those_of_xml_and_not_all_of_python() -> None:
    # HC-2
    for number in ("1_0", "٣", "1" * 1_001, "\u00a01", "0b1"):
        assert not _taken(f"<Sheet><number>{number}</number>{_REST}</Sheet>".encode()), number
    for ratio in ("NaN", "INF", "-INF", "1e999", "inf", "1_0.0", "٣"):
        assert not _taken(
            f"<Sheet><number>1</number>{_REST}</Sheet>".replace("<ratio>1", f"<ratio>{ratio}").encode()
        )
    assert _taken(f"<Sheet><number>1</number>{_REST}</Sheet>".encode())


_REST = "<ratio>1</ratio><ready>true</ready><way>air</way>"
