"""Any JSON Schema becomes one that each provider takes, in a size that is bounded."""

import json
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st
from support.schema_rules import anthropic_refusals, google_refusals, openai_refusals

from pallas.executors.fastagent.google_schema import google_schema
from pallas.executors.fastagent.tool_schemas import chat_schema, messages_schema

NAMES = st.sampled_from(["a", "b", "c d", "$ref", "type", "properties", ""])
VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
KINDS = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null", "odd"])
REFERENCES = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/nowhere", "other.json"])
WORDS = st.sampled_from(["date", "date-time", "int32", "^x"])


def _keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    named = st.dictionaries(NAMES, inner, max_size=3)
    several = st.lists(inner, max_size=3)
    number = st.integers(0, 9) | st.floats(0, 9) | st.booleans()
    return st.fixed_dictionaries(
        {},
        optional={
            "type": KINDS | st.lists(KINDS, min_size=1, max_size=3, unique=True),
            "properties": named,
            "required": st.lists(NAMES, max_size=3, unique=True) | st.booleans(),
            "patternProperties": st.dictionaries(st.just("^x"), inner, max_size=1),
            "additionalProperties": inner,
            "items": inner | several,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "allOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "enum": st.lists(VALUES, min_size=1, max_size=4),
            "const": VALUES,
            "minimum": st.integers(0, 9),
            "exclusiveMinimum": number,
            "exclusiveMaximum": number,
            "minItems": st.integers(0, 9),
            "format": WORDS,
            "pattern": WORDS,
            "nullable": st.booleans(),
            "description": st.text(max_size=3) | st.integers(),
            "$ref": REFERENCES,
            "$defs": st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
        },
    )


SCHEMAS = st.recursive(st.booleans() | st.just({}), _keywords, max_leaves=12)


@pytest.mark.slow
@given(SCHEMAS)
def test_any_schema_becomes_one_that_gemini_takes(schema: Any) -> None:
    found = google_schema(schema)
    assert list(google_refusals(found)) == []
    types.Schema(**found)


@pytest.mark.slow
@given(SCHEMAS)
def test_any_schema_becomes_one_that_openai_takes(schema: Any) -> None:
    before = json.dumps(schema)
    assert list(openai_refusals(chat_schema(schema))) == []
    assert json.dumps(schema) == before


@pytest.mark.slow
@given(SCHEMAS)
def test_any_schema_becomes_one_that_anthropic_takes_or_is_refused_by_name(schema: Any) -> None:
    try:
        found = messages_schema(schema)
    except ValueError as error:
        assert "property" in str(error)
    else:
        assert list(anthropic_refusals(found)) == []


def _nested(key: str, depth: int) -> Any:
    schema: Any = {"type": "object", "properties": {"a": {"type": "string"}}}
    for _ in range(depth):
        schema = {
            "type": "object",
            "properties": {"a": schema},
            key: [{}, {"required": ["a"]}, {"title": "b"}],
        }
    return schema


@pytest.mark.slow
@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf"])
def test_combinations_do_not_multiply_without_end(key: str) -> None:
    schema = _nested(key, 30)
    assert len(json.dumps(google_schema(schema))) < 10_000_000
    assert len(json.dumps(chat_schema(schema))) < 100_000


def test_a_deep_schema_is_cut() -> None:
    schema: Any = {"type": "string"}
    for number in range(500):
        schema = {"items": schema} if number % 2 else {"type": "object", "properties": {"a": schema}}
    given = {"type": "object", "properties": {"a": schema}}
    assert 1_000 < len(json.dumps(google_schema(given))) < 10_000
    assert 500 < len(json.dumps(chat_schema(given))) < 5_000


def test_references_that_double_are_written_out_within_a_bound() -> None:
    parts = {
        f"n{i}": {"type": "object", "allOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 2, "properties": both(i)}
        for i in range(40)
    }
    schema = {"$ref": "#/$defs/n0", "anyOf": [{"$ref": "#/$defs/n1"}] * 2, "$defs": parts}
    assert len(json.dumps(google_schema(schema))) < 20_000_000
    assert "properties" in chat_schema(schema)


def both(number: int) -> Any:
    """Two properties that refer to the same next schema."""
    return {name: {"$ref": f"#/$defs/n{number + 1}"} for name in "ab"}


def test_a_type_that_refers_to_itself_is_written_out_once() -> None:
    node = {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
    }
    found = google_schema(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    )
    assert found["properties"]["a"]["properties"]["next"]["nullable"] is True
    assert len(json.dumps(found)) < 1_000


@pytest.mark.parametrize(
    "keyword", [{"$ref": 5}, {"pattern": []}, {"maximum": float("inf")}, {"minLength": "1"}, {"format": 7}]
)
def test_a_keyword_of_a_wrong_kind_is_left_out(keyword: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", **keyword}}}
    assert chat_schema(schema) == {"type": "object", "properties": {"a": {"type": "string"}}}


WRONG: list[Any] = [
    None, True, -1, 1.5, "no", "#/nowhere", "[", [], ["a", "a"], [1], ["string", "strng"], {"a": 1},
    {"a": {"type": "strng"}}, {"x": ["a", "a"]}, {"[": {}}, float("nan"),
]  # fmt: skip
KEYWORDS = """
type properties required enum items additionalProperties patternProperties propertyNames prefixItems contains
minContains uniqueItems minItems maxLength minProperties minimum exclusiveMaximum multipleOf pattern format
title examples $ref $defs $id $anchor $schema $vocabulary $dynamicRef $recursiveAnchor allOf anyOf not if
dependentSchemas dependentRequired dependencies unevaluatedItems deprecated contentEncoding contentSchema
"""


@pytest.mark.parametrize("keyword", KEYWORDS.split())
def test_no_value_of_a_nested_keyword_makes_a_provider_refuse_the_schema(keyword: str) -> None:
    for value in WRONG:
        inner = {
            "type": "object",
            "properties": {"b": {keyword: value}},
            "additionalProperties": {keyword: value},
        }
        schema = {"type": "object", "properties": {"a": {"anyOf": [inner, {"type": "string"}]}}}
        assert list(openai_refusals(chat_schema(schema))) == [], value
        assert list(anthropic_refusals(messages_schema(schema))) == [], value
        assert list(google_refusals(google_schema(schema))) == [], value


def test_a_reference_is_kept_if_it_leads_somewhere() -> None:
    parts = {"day": {"type": "string", "$anchor": "day"}, "a b": {"enum": [1]}}
    kept = ["#", "#/$defs/day", "#day", "#/$defs/a%20b", "#/properties/0"]
    gone = ["#/$defs/month", "#month", "other.json", "https://odd.test/day"]
    properties = {str(number): {"$ref": each} for number, each in enumerate((*kept, *gone))}
    found = chat_schema({"type": "object", "properties": properties, "$defs": parts})["properties"]
    assert [each["$ref"] for each in found.values() if each] == kept


@pytest.mark.parametrize("pattern", [r"^\p{L}+$", r"(?<year>\d{4})-\k<year>", "^[a-z]*$"])
def test_a_pattern_of_javascript_is_kept(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    assert chat_schema(schema) is schema
