"""The form of a tool: what is typed, what is sent, and what strangers' schemas cannot do to it.

The bugs of other argument editors that stand here were all shipped: escaping that grows with each key, null
where nothing was meant, numbers rounded, text made of numbers, fields that can be neither left out nor empty.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples

from pallas.bounds.schema import size
from pallas_tui.forms import (
    ABSENT,
    FieldKind,
    Form,
    FormRow,
    JsonMistake,
    Memory,
    Remembered,
    rows,
)
from pallas_tui.forms.field_rows import MAX_CHILDREN, MAX_ROWS
from pallas_tui.forms.form_check import Checker
from pallas_tui.forms.json_text import MAX_TEXT, brief, dump, parse, same
from pallas_tui.forms.value_paths import at, put, remove


def form(
    arguments: dict[str, Any] | None = None, *, required: tuple[str, ...] = (), **properties: Any
) -> Form:
    return Form(
        json.dumps({"type": "object", "properties": properties, "required": list(required)}), arguments
    )


def row(form: Form, *path: str | int) -> FormRow:
    return next(row for row in rows(form) if row.path == path)


def enter(form: Form, text: str, *path: str | int) -> None:
    found = row(form, *path)
    form.type_in(found.path, found.shape, text, found.required)


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
MANY = json.dumps({"enum": list(range(3000))})


# What is left out is left out


def test_optional_fields_that_nobody_touched_are_not_sent() -> None:
    one = form(a=STRING, b={"type": "array"}, c={"type": "object"}, d={"type": "integer", "default": 5})
    assert one.value == {}
    assert row(one, "d").shape.default == 5


def test_absent_empty_and_null_are_three_things() -> None:
    nullable = {"anyOf": [STRING, {"type": "null"}], "default": None}
    one = form(a=nullable)
    assert one.value == {}
    one.set(("a",), "")
    assert one.value == {"a": ""}
    one.set(("a",), None)
    assert one.value == {"a": None}
    enter(one, "", "a")
    assert one.value == {}
    assert [brief(value) for value in ("", None, "null")] == ['""', "null", '"null"']


def test_a_required_text_can_be_empty_and_an_optional_one_left_empty_is_not_sent() -> None:
    one = form(required=("must",), must=STRING, may=STRING)
    enter(one, "", "must")
    enter(one, "x", "may")
    enter(one, "", "may")
    assert one.value == {"must": ""}


def test_a_required_number_left_empty_is_told_and_not_made_up() -> None:
    one = form(required=("n",), n=INTEGER)
    enter(one, "  ", "n")
    assert one.value == {}
    assert one.mistakes.fields == {("n",): "required"}


def test_what_is_required_begins_with_its_default_and_its_only_choice() -> None:
    one = form(
        required=("a", "b", "c"),
        a={"type": "integer", "default": 3},
        b={"const": "v1"},
        c={"type": "object", "properties": {"d": {"const": 1}, "e": STRING}, "required": ["d"]},
        f={"const": "left out"},
    )
    assert one.value == {"a": 3, "b": "v1", "c": {"d": 1}}


# What is typed is what is sent


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (INTEGER, "9007199254740993", 9007199254740993),
        (INTEGER, "-123456789012345678901234567890", -123456789012345678901234567890),
        (INTEGER, "1e3", 1000),
        (INTEGER, "5.0", 5),
        ({"type": "number"}, "9007199254740993", 9007199254740993),
        ({"type": "number"}, "1.", 1.0),
        ({"type": "number"}, ".5", 0.5),
        (STRING, "5", "5"),
        (STRING, "null", "null"),
        (STRING, '{"a": 1}', '{"a": 1}'),
        (STRING, "two\nlines", "two\nlines"),
        ({}, '"5"', "5"),
        ({}, "[1, null]", [1, None]),
        ({"type": ["integer", "null"]}, "null", None),
    ],
)
def test_a_field_takes_exactly_what_was_typed(schema: Any, text: str, value: Any) -> None:
    one = form(a=schema)
    enter(one, text, "a")
    assert same(one.value["a"], value)
    assert one.mistakes.fields == {}


@pytest.mark.parametrize(
    ("schema", "text", "reason"),
    [
        (INTEGER, "1.5", "not a whole number"),
        (INTEGER, "1_000", "not a whole number"),
        (INTEGER, "0x10", "not a whole number"),
        (INTEGER, "١٢", "not a whole number"),
        (INTEGER, "1e9999", "too large"),
        ({"type": "number"}, "nan", "not a number"),
        ({"type": "number"}, "1e999", "too large"),
        ({}, "hello", "quotes"),
        ({}, "[1, 2", "line 1, column 6"),
    ],
)
def test_what_stands_for_nothing_is_refused_and_changes_nothing(schema: Any, text: str, reason: str) -> None:
    one = form({"a": 1}, a=schema)
    with pytest.raises(JsonMistake, match=reason):
        enter(one, text, "a")
    assert one.value == {"a": 1}


def test_text_that_looks_like_json_is_never_read_as_json_nor_the_other_way_round() -> None:
    # inspector 110, 2171: an object as a string, a string as a number
    one = form({"n": "01"}, n=INTEGER, o={"type": "object"})
    one.type_json(("o",), '{"a": "1"}')
    assert one.value == {"n": "01", "o": {"a": "1"}}
    assert one.mistakes.fields == {("n",): "must be integer"}


# The JSON text


def test_half_written_json_stays_as_it_was_typed_and_is_never_sent() -> None:
    # inspector 1853, 1855, 1856, 1885: each key escaped the text once more, or sent the value before
    one = form(numbers={"type": "array", "items": {"type": "number"}})
    assert one.edit_raw('{"numbers": [1, 2]}')
    for cut in range(1, 15):
        text = '{"numbers": [1, 2]}'[:-cut]
        assert not one.edit_raw(text)
        assert one.raw == text
        assert one.raw_mistake
    assert one.value == {"numbers": [1, 2]}
    assert one.edit_raw('{"numbers": null}')
    assert (one.value, one.raw_mistake) == ({"numbers": None}, "")


def test_both_views_follow_each_other_and_keys_nobody_knows_stay() -> None:
    one = form(a=INTEGER)
    assert one.edit_raw('{"zzz": {"b": [1]},   "a": 1}')
    assert row(one, "zzz").known is False
    enter(one, "2", "a")
    assert one.raw == dump({"zzz": {"b": [1]}, "a": 2})
    assert row(one, "a").value == 2


def test_json_keeps_its_wording_until_a_field_is_changed() -> None:
    one = form(a={"type": "number"})
    text = '{ "a": 1.50 }'
    assert one.edit_raw(text)
    assert one.raw == text
    enter(one, "2", "a")
    assert one.raw == '{\n  "a": 2\n}'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "an object"),
        ('{"a": 1, "a": 2}', '"a" occurs twice'),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "too large"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"a": ' + "[" * 5_000 + "]" * 5_000 + "}", "within one another"),
        ('{"a": ' + "[" * 150 + "]" * 150 + "}", "within one another"),
        ('{"a": ' + "9" * 5_000 + "}", "too many digits"),
        ('{"a": "' + "x" * MAX_TEXT + '"}', "longer than"),
        ('{"a": 1,\n  b}', "line 2"),
    ],
)
def test_json_that_cannot_be_sent_is_refused_with_the_reason(text: str, reason: str) -> None:
    one = form({"kept": 1})
    assert not one.edit_raw(text)
    assert reason in one.raw_mistake
    assert one.value == {"kept": 1}


# Kinds


def test_a_nullable_choice_is_a_choice() -> None:
    # inspector 1928: it fell back to a field of broken JSON
    one = form(a={"anyOf": [{"type": "string", "enum": ["in", "out"]}, {"type": "null"}]})
    shape = row(one, "a").shape
    assert (shape.kind, shape.choices, shape.nullable) == (FieldKind.CHOICE, ("in", "out"), True)


@pytest.mark.parametrize(
    ("schema", "kind", "nullable"),
    [
        ({"anyOf": [INTEGER, {"type": "null"}]}, FieldKind.INTEGER, True),
        ({"type": ["null", "string"]}, FieldKind.TEXT, True),
        ({"type": "string", "nullable": True}, FieldKind.TEXT, True),
        ({"oneOf": [{"const": None}, {"type": "array", "items": STRING}]}, FieldKind.ARRAY, True),
        ({"oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, FieldKind.CHOICE, False),
        ({"enum": [1, "1", None, {"a": 1}]}, FieldKind.CHOICE, False),
        ({"type": ["string", "integer"]}, FieldKind.VARIANTS, False),
        ({"anyOf": [STRING, INTEGER, {"type": "null"}]}, FieldKind.VARIANTS, True),
        ({"properties": {}}, FieldKind.OBJECT, False),
        (
            {"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            FieldKind.OBJECT,
            False,
        ),
        (True, FieldKind.ANY, False),
        (False, FieldKind.ANY, False),
        ({"$ref": "#/$defs/thing"}, FieldKind.ANY, False),
    ],
)
def test_schemas_come_down_to_few_kinds(schema: Any, kind: FieldKind, nullable: bool) -> None:
    shape = row(form(a=schema), "a").shape if kind is not FieldKind.VARIANTS else None
    if shape is None:
        one = form(a=schema)
        shape = one.shapes.of(one.root["properties"]["a"])
    assert (shape.kind, shape.nullable) == (kind, nullable)


def test_a_choice_of_numbers_stays_a_number_and_one_is_not_true() -> None:
    one = form(a={"enum": [1, 2]})
    shape = row(one, "a").shape
    assert shape.fits(1)
    assert not shape.fits(True)
    assert not shape.fits("1")


def test_references_and_parts_are_joined() -> None:
    schema = {
        "$defs": {"base": {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}},
        "type": "object",
        "properties": {
            "a~b/c": {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"name": STRING}}], "title": "Both"}
        },
    }
    one = Form(json.dumps(schema))
    shape = row(one, "a~b/c").shape
    assert (shape.title, list(shape.properties), shape.required) == ("Both", ["id", "name"], {"id"})
    one.begin(("a~b/c",), one.root["properties"]["a~b/c"])
    enter(one, "7", "a~b/c", "id")
    assert one.value == {"a~b/c": {"id": 7}}


def test_a_schema_that_contains_itself_unfolds_as_far_as_somebody_asks() -> None:
    schema = {
        "$defs": {
            "node": {"type": "object", "properties": {"name": STRING, "next": {"$ref": "#/$defs/node"}}}
        },
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
    }
    one = Form(json.dumps(schema))
    assert [row.path for row in rows(one)] == [("tree",)]
    path: tuple[str, ...] = ("tree",)
    for _ in range(5):
        one.opened[path] = True
        path = (*path, "next")
    enter(one, "deep", *path[:-1], "name")
    assert at(one.value, (*path[:-1], "name")) == "deep"


def test_required_recursion_ends() -> None:
    endless = {
        "$defs": {"n": {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}}
    }
    one = Form(json.dumps({**endless, "$ref": "#/$defs/n"}))
    assert len(dump(one.value)) < 500
    assert len(rows(one)) < 50


# Lists, objects, variants


def test_items_are_added_changed_and_removed_and_what_was_unfolded_moves_with_them() -> None:
    item = {"type": "object", "properties": {"name": STRING}}
    one = form(list={"type": "array", "items": item})
    shape = row(one, "list").shape
    for number in range(3):
        assert one.add(("list",), shape) == ("list", number)
        enter(one, str(number), "list", number, "name")
    one.opened["list", 2] = False
    one.unset(("list", 0))
    assert one.value == {"list": [{"name": "1"}, {"name": "2"}]}
    assert one.opened.get(("list", 1)) is False
    assert ("list", 2) not in one.opened


def test_a_fixed_list_takes_no_more_than_it_may() -> None:
    one = form(pair={"type": "array", "prefixItems": [STRING, INTEGER], "items": False})
    shape = row(one, "pair").shape
    assert [one.add(("pair",), shape) for _ in range(3)] == [("pair", 0), ("pair", 1), None]
    assert one.value == {"pair": ["", 0]}


def test_an_object_of_any_names_takes_new_ones_and_a_closed_one_does_not() -> None:
    one = form(
        labels={"type": "object", "additionalProperties": INTEGER},
        closed={"type": "object", "additionalProperties": False},
    )
    shape = row(one, "labels").shape
    assert one.name(("labels",), shape, "größe") == ("labels", "größe")
    assert one.name(("labels",), shape, "größe") is None
    assert row(one, "labels", "größe").shape.kind is FieldKind.INTEGER
    assert one.name(("closed",), row(one, "closed").shape, "x") is None
    assert one.value == {"labels": {"größe": 0}}


def test_what_stood_in_a_variant_comes_back_with_it() -> None:
    cat = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": INTEGER}, "required": ["kind"]}
    dog = {"type": "object", "properties": {"kind": {"const": "dog"}, "name": STRING}, "required": ["kind"]}
    one = form(pet={"oneOf": [cat, dog]})
    chooser = one.shapes.of(one.root["properties"]["pet"])
    one.choose(("pet",), chooser, 1)
    assert one.value == {"pet": {"kind": "dog"}}
    enter(one, "Rex", "pet", "name")
    one.choose(("pet",), chooser, 0)
    assert one.value == {"pet": {"kind": "cat"}}
    one.choose(("pet",), chooser, 1)
    assert one.value == {"pet": {"kind": "dog", "name": "Rex"}}
    assert one.mistakes.fields == {}


def test_the_variant_is_the_one_that_fits_what_stands_there() -> None:
    one = form({"a": 5}, a={"type": ["string", "integer"]})
    chooser = one.shapes.of(one.root["properties"]["a"])
    assert one.variant(("a",), chooser) == 1
    one.edit_raw('{"a": "x"}')
    assert one.variant(("a",), chooser) == 0


def test_arguments_that_are_one_of_several_objects_have_the_choice_first() -> None:
    both = {
        "oneOf": [
            {"type": "object", "properties": {"a": STRING}},
            {"type": "object", "properties": {"b": INTEGER}},
        ]
    }
    one = Form(json.dumps(both))
    assert [found.path for found in rows(one)] == [(), ("a",)]
    one.choose((), one.root_shape, 1)
    assert [found.path for found in rows(one)] == [(), ("b",)]
    enter(one, "3", "b")
    assert one.value == {"b": 3}


# The check


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"minimum": 3}, 2, "at least 3"),
        ({"exclusiveMaximum": 3}, 3, "less than 3"),
        ({"multipleOf": 0.01}, 19.999, "a multiple of 0.01"),
        ({"minLength": 2}, "a", "2 characters at least"),
        ({"pattern": "^a"}, "b", "must match ^a"),
        ({"pattern": r"^\p{Lu}"}, "é", "must match"),
        ({"format": "date-time"}, "2026-01-01", "a date and time such as"),
        ({"format": "email"}, "nobody", "an e-mail address"),
        ({"format": "uri"}, "example", "an address such as"),
        ({"format": "uuid"}, "x", "a UUID"),
        ({"enum": ["a", 1]}, "b", "must be one of"),
        ({"const": 1}, True, "must be 1"),
        ({"type": ["integer", "null"]}, "x", "must be integer or null"),
        ({"uniqueItems": True}, [1, 1.0], "no two items"),
        ({"maxItems": 1}, [1, 2], "1 items at most"),
        ({"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 5}]}, 3, "at least 5"),
        ({"not": {"const": 1}}, 1, "must not have this value"),
    ],
)
def test_each_rule_is_told_at_its_field(schema: Any, value: Any, reason: str) -> None:
    found = Checker({"properties": {"deep": {"items": schema}}}).mistakes({"deep": [value]})
    assert list(found.fields) == [("deep", 0)]
    assert reason in found.fields["deep", 0]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"multipleOf": 0.01}, 19.99),
        ({"format": "date-time"}, "2026-05-31T14:30:00Z"),
        ({"format": "unheard-of"}, "x"),
        ({"uniqueItems": True}, [1, True, "1"]),
        ({"type": "integer"}, 2**80),
        ({"type": "integer"}, 5.0),
        ({"pattern": r"^\d+/\w$"}, "12/a"),
    ],
)
def test_what_is_right_is_not_complained_about(schema: Any, value: Any) -> None:
    found = Checker(schema).mistakes(value)
    assert (found.fields, found.note) == ({}, "")


# Schemas of strangers


def laughs() -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    return {"$defs": {**defs, "d60": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        "{",
        "true",
        "false",
        '{"type": 5, "properties": [], "required": "x", "items": 3, "enum": 5, "anyOf": {}}',
        '{"properties": {"a": 5, "b": null, "c": {"type": [], "anyOf": [1]}, "d": {"type": [1]}}}',
        '{"properties": {"a": {"minimum": "z", "pattern": 5, "maxLength": [], "title": 5, "format": {}}}}',
        '{"properties": {"a": {"pattern": "("}, "b": {"$ref": "http://127.0.0.1:1/x"}, "c": {"$ref": 7}}}',
        '{"properties": {"a": {"$ref": "#/properties/a"}, "b": {"$ref":"#"}}}',
        '{"properties": {"a": {"pattern": "^(a+)+$"}, "b": {"pattern": "((a{1000}){1000}){1000}"}}}',
        '{"properties": {"a": {"const": {"deep": [1]}}, "": {"type": "string"}, "__proto__": {}}}',
        '{"properties": {"a": {"enum": []}, "b": {"anyOf": []}, "c": {"oneOf": [false, true]}}}',
        '{"$schema": 7, "unevaluatedProperties": {"allOf": [{"$ref": "#"}]}, "properties": {"a": {}}}',
        json.dumps(laughs()),
        '{{"properties": {{{}}}}}'.format(",".join(f'"p{i}": {MANY}' for i in range(3000))),
        '{"a":' * 5_000 + "1" + "}" * 5_000,
    ],
)
def test_a_hostile_schema_neither_breaks_nor_hangs_the_form(text: str) -> None:
    one = Form(text)
    one.edit_raw(json.dumps({"a": "a" * 40 + "!", "b": [1], "c": {"x": None}, "extra": "\u001b[2J"}))
    shown = rows(one)
    assert len(shown) <= MAX_ROWS + 1
    assert one.mistakes is not None
    for found in shown:
        assert all(char.isprintable() for char in found.label)
    assert json.loads(one.raw)["extra"] == "\u001b[2J"


def test_what_is_required_of_what_is_required_does_not_grow_without_end() -> None:
    # 20 fields that each need 20: without a bound three million objects at once.
    names = [f"n{number}" for number in range(20)]
    node = {
        "type": "object",
        "properties": {name: {"$ref": "#/$defs/n"} for name in names},
        "required": names,
    }
    one = Form(json.dumps({"$defs": {"n": node}, "$ref": "#/$defs/n"}))
    assert len(dump(one.value, None)) < 10_000
    assert len(rows(one)) <= MAX_ROWS + 1


def test_a_wide_object_shows_the_first_fields_and_counts_the_others() -> None:
    one = form(**{f"p{number:04}": STRING for number in range(3_000)})
    shown = rows(one)
    assert len(shown) == MAX_CHILDREN + 1
    assert shown[-1].label == f"{3_000 - MAX_CHILDREN} more: they are in the JSON"


def test_many_rows_end_somewhere() -> None:
    one = form({f"k{number}": {f"m{number}": 1 for number in range(50)} for number in range(100)})
    assert len(rows(one)) == MAX_ROWS + 1
    assert rows(one)[-1].more


def test_words_of_a_schema_are_safe_to_show() -> None:
    hostile = "\u001b]52;c;x\u0007\u202e[@click=app.quit]"
    one = form(
        {hostile: hostile},
        **{hostile: {"type": "string", "title": hostile, "description": hostile, "pattern": hostile}},
    )
    found = rows(one)[0]
    texts = [found.label, found.shape.title, found.shape.description, found.shape.limits, brief(found.value)]
    texts += one.mistakes.fields.values()
    for text in texts:
        assert "\u001b" not in text
        assert "\u202e" not in text
        assert "\u0007" not in text
    assert one.value == {hostile: hostile}


def test_patterns_are_measured_before_they_are_compiled() -> None:
    assert size("((a{1000}){1000}){1000}") == 1_000_000_000
    assert size("a{100}{100}{100}") == 1_000_000
    assert size(r"[a-z]{1,63}(\.[a-z]{1,63}){0,3}") < 500


def test_a_check_that_would_take_for_ever_is_given_up() -> None:
    found = Checker(laughs()).mistakes({"a": 1})
    assert "the server decides" in found.note


# Everything together


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))


@pytest.mark.slow
@given(value=st.dictionaries(st.text(max_size=5), JSON, max_size=5))
@examples(150)
def test_arguments_come_back_from_text_as_they_were(value: dict[str, Any]) -> None:
    one = form(a=STRING)
    try:
        text = dump(value)
        text.encode()
    except UnicodeEncodeError:
        return
    assert one.edit_raw(text)
    assert same(one.value, value)
    for found in rows(one):
        assert same(found.value, at(value, found.path)) or found.value is ABSENT


@given(text=TEXTS)
@examples(150)
def test_any_text_is_sent_as_it_was_typed(text: str) -> None:
    one = form(required=("a",), a=STRING)
    enter(one, text, "a")
    assert one.value == {"a": text}
    assert parse(one.raw) == one.value


@pytest.mark.slow
@given(schema=JSON, arguments=st.dictionaries(st.text(max_size=5), JSON, max_size=4))
@examples(200)
def test_no_document_at_all_breaks_the_form(schema: Any, arguments: dict[str, Any]) -> None:
    wild = {"type": "object", "properties": schema, "required": schema, "anyOf": schema, "items": schema}
    for document in (schema, wild, {"properties": {"a": wild, "b": schema}}):
        one = Form(json.dumps(document), arguments)
        assert rows(one) is not None
        assert one.mistakes is not None


@pytest.mark.slow
@given(value=JSON, keys=st.lists(st.text(max_size=3) | st.integers(0, 3), min_size=1, max_size=4))
@examples(150)
def test_putting_and_removing_touch_nothing_else(value: Any, keys: list[str | int]) -> None:
    whole = {"a": value, "other": [1, {"x": 2}]}
    before = json.dumps(whole)
    path = ("a", *keys)
    changed = put(whole, path, "new")
    assert json.dumps(whole) == before
    assert changed["other"] == whole["other"]
    gone = remove(whole, path)
    assert json.dumps(whole) == before
    assert gone["other"] == whole["other"]


# The memory


def test_the_last_call_of_each_tool_is_kept_and_the_oldest_forgotten() -> None:
    memory = Memory()
    for number in range(150):
        memory.keep(("agent", "server", f"t{number}"), Remembered({"n": number}, "TOKEN"))
    assert memory.last(("agent", "server", "t0")) is None
    assert memory.last(("agent", "server", "t149")) == Remembered({"n": 149}, "TOKEN")
