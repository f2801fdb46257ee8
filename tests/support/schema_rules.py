"""What the APIs of model providers refuse in the schema of a tool; one refusal fails the whole request."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema

_GOOGLE = {
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems",
    "properties", "required", "minProperties", "maxProperties", "minLength", "maxLength", "pattern",
    "minimum", "maximum", "anyOf",
}  # fmt: skip
_KINDS = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}
_FORMATS = {"STRING": {"date-time", "enum"}, "NUMBER": {"float", "double"}, "INTEGER": {"int32", "int64"}}


def google_refusals(schema: Any, place: str = "parameters", *, top: bool = True) -> Iterator[str]:
    """What Gemini refuses of ``parameters``."""
    if not isinstance(schema, dict):
        yield f"{place}: no object"
        return
    for key in schema.keys() - _GOOGLE:
        yield f"{place}: unknown name {key!r}"
    kind = str(schema.get("type", "")).upper()
    if top and kind != "OBJECT":
        yield f"{place}: should be OBJECT"
    if "anyOf" in schema:
        for number, each in enumerate(schema["anyOf"]):
            yield from google_refusals(each, f"{place}.anyOf[{number}]", top=False)
    elif kind not in _KINDS:
        yield f"{place}: type {schema.get('type')!r}"
    if "enum" in schema and (kind != "STRING" or not all(isinstance(each, str) for each in schema["enum"])):
        yield f"{place}.enum: only allowed for STRING type"
    if "format" in schema and schema["format"] not in _FORMATS.get(kind, ()):
        yield f"{place}.format: {schema['format']!r}"
    if kind == "ARRAY":
        yield from google_refusals(schema.get("items"), f"{place}.items", top=False)
    properties = schema.get("properties", {})
    for name, each in properties.items():
        yield from google_refusals(each, f"{place}.{name}", top=False)
    for name in schema.get("required", ()):
        if name not in properties:
            yield f"{place}.required: property is not defined: {name}"


def openai_refusals(schema: Any) -> Iterator[str]:
    """What chat completions and Responses refuse of ``parameters``."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield "schema must be of 'type': 'object'"
        return
    for key in ("oneOf", "anyOf", "allOf", "enum", "not"):
        if key in schema:
            yield f"schema must not have {key!r} at the top level"
    yield from _invalid(schema)
    yield from _lists(schema)
    yield from _references(schema, schema)


def anthropic_refusals(schema: Any) -> Iterator[str]:
    """What the Messages API refuses of ``input_schema``."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        yield "input_schema.type: should be 'object'"
        return
    for key in ("oneOf", "anyOf", "allOf"):
        if key in schema:
            yield f"input_schema does not support {key} at the top level"
    for name in schema.get("properties", {}):
        if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,64}", name):
            yield f"property keys should match pattern: {name!r}"
    yield from _invalid(schema)
    yield from _references(schema, schema)


def _invalid(schema: Any) -> Iterator[str]:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as error:
        yield f"{error.json_path}: {error.message}"


def _lists(node: Any) -> Iterator[str]:
    """Lists without the schema of their items."""
    if isinstance(node, list):
        for each in node:
            yield from _lists(each)
    if isinstance(node, dict):
        kind = node.get("type")
        if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and not isinstance(
            node.get("items"), dict
        ):
            yield "array schema missing items"
        for key, each in node.items():
            if key not in ("enum", "const", "default", "examples"):
                yield from _lists(each)


def _references(root: Any, node: Any) -> Iterator[str]:
    """References to what is not in the schema."""
    for each in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _references(root, each)
    reference = node.get("$ref") if isinstance(node, dict) else None
    if isinstance(reference, str) and not re.fullmatch(r"#[A-Za-z_]\w*", reference):
        found = root
        for part in reference.removeprefix("#").split("/")[1:]:
            found = found.get(part) if isinstance(found, dict) else None
        if not reference.startswith("#") or found is None:
            yield f"$ref: cannot find {reference!r}"
