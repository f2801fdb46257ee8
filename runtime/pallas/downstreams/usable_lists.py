"""Lists of tools, prompts and resources without their unfit items."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from mcp.shared.inbound import find_invalid_x_mcp_header

from pallas.bounds import MAX_ENTRIES

from .result_fit import Findings, Kind, as_json, fitted, has_handshake, item_models, kind_of, refusal

LISTS: Final[Mapping[str, tuple[str, Kind]]] = {
    "tools/list": ("tools", "tool"),
    "prompts/list": ("prompts", "prompt"),
    "resources/list": ("resources", "resource"),
    "resources/templates/list": ("resourceTemplates", "resource template"),
}
"""The key of each method's list, and what its items are."""
_IDENTITY: Final = ("name", "uri", "uriTemplate")
_SCHEMA_ELSEWHERE: Final = ("input_schema", "parameters")  # as the APIs of model providers have it
MAX_TEXT: Final = 64 * 1024
"""Characters of a description, and of each other part of an item that only decorates it."""
MAX_NAME: Final = 1_000
"""Characters of a name or address."""
MAX_SCHEMA: Final = 1024 * 1024
"""Characters of a schema as JSON."""
_NO_ARGUMENTS: Final = {"type": "object", "properties": {}}

_Object = dict[str, Any]


class _Unfit(Exception):
    """An item that is left out."""


def usable_list(
    method: str, version: str, result: _Object, findings: Findings
) -> tuple[_Object, dict[str, _Object]]:
    """Return the result with the items that fit, and the output schemas of its tools by their names.

    The tools have no output schema any more: the SDK would check results with it, without a limit.
    """
    key, kind = LISTS[method]
    prepared = list(_prepared(result.get(key), key, kind, version, findings))
    is_sound = refusal(method, version, {**result, key: [each.value for each in prepared]}) is None
    models = () if is_sound else item_models(method, version, key)
    schemas: dict[str, _Object] = {}
    kept = []
    for label, item, output, notes in prepared:
        fit = fitted(models, item)
        try:
            if fit.value is None:
                raise _Unfit(fit.why)
            name = fit.value["name"]
            if kind == "tool" and not has_handshake(version):
                _check_headers(fit.value["inputSchema"])
        except _Unfit as unfit:
            findings.add(kind, label, str(unfit))
            continue
        for part, why in (*notes, *fit.dropped.items()):
            findings.add(kind, label, why, part)
        if output is not None:
            schemas.setdefault(name, output)
        kept.append(fit.value)
    return {**result, key: kept, **_cursor(result, findings)}, schemas


class _Item(NamedTuple):
    """An item whose meaning is clear."""

    label: str
    value: _Object
    output_schema: _Object | None
    notes: list[tuple[str, str]]
    """What was changed: the parts, with reasons."""


def _prepared(value: Any, key: str, kind: Kind, version: str, findings: Findings) -> Iterator[_Item]:
    """Yield the items, repaired where it is clear what was meant."""
    items = _items(value, key, findings)
    if len(items) > MAX_ENTRIES:
        why = f"it lists {len(items):,} {key} at once; the first {MAX_ENTRIES:,} are used"
        findings.add("result", key, why)
    for place, each in enumerate(items[:MAX_ENTRIES], 1):
        label = _label(each) or str(place)
        try:
            if not isinstance(each, dict):
                raise _Unfit(f"it is {kind_of(each)}, not an object")
            item, output = dict(each), None
            notes: list[tuple[str, str]] = []
            if kind == "tool":
                output = _take_output_schema(item, version, notes)
                item["inputSchema"] = _input_schema(item, notes)
            elif kind != "prompt":
                _name_resource(item, notes)
            _bound_item(item, notes)
        except _Unfit as unfit:
            findings.add(kind, label, str(unfit))
        else:
            yield _Item(label, item, output, notes)


def _label(item: Any) -> str:
    """Return the item's name or address; empty if it has none."""
    labels = (item.get(key) for key in ("name", "uri", "uriTemplate")) if isinstance(item, dict) else ()
    return next((each for each in labels if isinstance(each, str) and each.strip()), "")


def _items(value: Any, key: str, findings: Findings) -> list[Any]:
    match value:
        case list():
            return value
        case {"name": str()}:
            findings.add("result", "", f"its {key} are one object, not a list", key)
            return [value]
        case dict():  # as some languages write a list whose numbers have gaps
            findings.add("result", "", f"its {key} are an object, not a list; its values are taken", key)
            return [_named(name, each) for name, each in value.items()]
    findings.add(
        "result", "", f"it has no list of {key}, but {kind_of(value)}" if value else f"it has no {key}", key
    )
    return []


def _named(key: str, item: Any) -> Any:
    """Return an item of an object; its key is its name if it has none and the key is not a number."""
    return {"name": key, **item} if isinstance(item, dict) and not key.isdigit() else item


def _cursor(result: _Object, findings: Findings) -> _Object:
    """Return the cursor of the next page if it must change. An empty text is a cursor like any other."""
    match result.get("nextCursor"):
        case None | str():
            return {}
        case bool() | list() | dict() as wrong:
            findings.add(
                "result", "", f"its nextCursor is {kind_of(wrong)}; no further page is listed", "nextCursor"
            )
            return {"nextCursor": None}
        case number:
            findings.add("result", "", "its nextCursor is a number, not a text", "nextCursor")
            return {"nextCursor": as_json(number)}


def _bound_item(item: _Object, notes: list[tuple[str, str]]) -> None:
    """Cut or drop what is too large in an item: it would go to a model with each turn. Raises _Unfit."""
    for key, value in list(item.items()):
        size = len(value) if isinstance(value, str) else len(as_json(value)) if value else 0
        if key in _IDENTITY and size > MAX_NAME:
            raise _Unfit(f"its {key} has {size:,} characters, {MAX_NAME:,} at most are allowed")
        if key == "inputSchema" and size > MAX_SCHEMA:
            raise _Unfit(f"its {key} has {size:,} characters, {MAX_SCHEMA:,} at most are allowed")
        if key in ("inputSchema", "arguments") or size <= MAX_TEXT:
            continue
        if key == "description" and isinstance(value, str):
            item[key] = value[:MAX_TEXT]
            notes.append((key, f"its {key} has {size:,} characters; the first {MAX_TEXT:,} are used"))
        else:
            del item[key]
            notes.append((key, f"its {key} has {size:,} characters, {MAX_TEXT:,} at most are allowed"))


def _take_output_schema(tool: _Object, version: str, notes: list[tuple[str, str]]) -> _Object | None:
    """Take the output schema off the tool; return it if results can be checked with it."""
    schema = tool.pop("outputSchema", None)
    why = ""
    if schema is None or schema == {}:
        return None
    if not isinstance(schema, dict):
        why = f"its outputSchema is {kind_of(schema)}, not an object"
    elif (size := len(as_json(schema))) > MAX_SCHEMA:
        why = f"its outputSchema has {size:,} characters, {MAX_SCHEMA:,} at most are allowed"
    elif has_handshake(version) and schema.get("type") is not None and not _is_object(schema["type"]):
        why = f"its outputSchema is of the type {as_json(schema['type'])}, not object"
    else:
        return schema
    notes.append(("outputSchema", f"{why}; its results are not checked"))
    return None


def _is_object(kind: Any) -> bool:
    """Whether the type of a schema is that of an object, perhaps among others."""
    kinds = kind if isinstance(kind, list) else [kind]
    return any(isinstance(each, str) and each.lower() == "object" for each in kinds)


def _input_schema(tool: _Object, notes: list[tuple[str, str]]) -> _Object:
    """Return the tool's input schema as the SDK takes it. Raises _Unfit if its meaning is not clear."""
    given = tool.get("inputSchema")
    if given is None or given == []:
        elsewhere = next((key for key in _SCHEMA_ELSEWHERE if isinstance(tool.get(key), dict)), None)
        if elsewhere is None:
            what = "has no inputSchema" if given is None else "has an empty list as its inputSchema"
            notes.append(("inputSchema", f"it {what}, and is offered without arguments"))
            return dict(_NO_ARGUMENTS)
        notes.append(("inputSchema", f"its inputSchema is called {elsewhere}"))
        given = tool[elsewhere]
    if not isinstance(given, dict):
        raise _Unfit(f"its inputSchema is {kind_of(given)}, not an object")
    schema = dict(given)
    kind = schema.get("type")
    if kind is None:
        notes.append(("inputSchema.type", "its inputSchema has no type; it is taken as that of an object"))
    elif not _is_object(kind):
        raise _Unfit(f"its inputSchema is of the type {as_json(kind)}, not object")
    elif kind != "object":
        notes.append(("inputSchema.type", f"its inputSchema is of the type {as_json(kind)}, not object"))
    schema["type"] = "object"
    for part, why in _repair_properties(schema):
        notes.append((f"inputSchema.{part}", f"its inputSchema.{part} {why}"))
    return schema


def _repair_properties(schema: _Object) -> Iterator[tuple[str, str]]:
    """Replace what the SDK does not take in a schema's properties; yield the parts, with reasons."""
    properties = schema.get("properties")
    if properties is not None and not isinstance(properties, dict):
        schema["properties"] = {}
        yield "properties", f"is {kind_of(properties)}, not an object"
    elif properties is not None and not all(isinstance(each, dict | bool) for each in properties.values()):
        schema["properties"] = {
            name: each if isinstance(each, dict | bool) else {} for name, each in properties.items()
        }
        for name, each in properties.items():
            if not isinstance(each, dict | bool):
                yield f"properties.{name}", f"is {kind_of(each)}, not a schema; it takes any value"
    required = schema.get("required")
    if required is not None and not (
        isinstance(required, list) and all(isinstance(each, str) for each in required)
    ):
        names = [each for each in required if isinstance(each, str)] if isinstance(required, list) else []
        schema["required"] = names
        yield "required", "is not a list of texts"
    if not isinstance(dialect := schema.get("$schema", ""), str):
        del schema["$schema"]  # some models' providers refuse it
        if dialect is not None:
            yield "$schema", "is not a text"


def _check_headers(schema: _Object) -> None:
    """Raise _Unfit where the SDK leaves a tool out without a word, as the protocol asks for."""
    if (why := find_invalid_x_mcp_header(schema)) is not None:
        raise _Unfit(f"its inputSchema has an unfit x-mcp-header: {why}")


def _name_resource(resource: _Object, notes: list[tuple[str, str]]) -> None:
    """Give a resource without a name its title or address as one: only its address is ever used."""
    name = resource.get("name")
    if isinstance(name, str):
        return
    labels = (resource.get(key) for key in ("title", "uri", "uriTemplate"))
    resource["name"] = next((each for each in labels if isinstance(each, str)), "")
    notes.append(("name", "it has no name" if name is None else f"its name is {kind_of(name)}, not a text"))
