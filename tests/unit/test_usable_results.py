"""What is made of the results of odd servers, one fault at a time, and what is said of it."""

from typing import Any

import pytest
from support.sdk_answers import HANDSHAKE, MODERN, usable, whole

from pallas.bounds import MAX_ENTRIES, MAX_PARTS
from pallas.downstreams.result_fit import LeftOut
from pallas.downstreams.usable_lists import MAX_SCHEMA, MAX_TEXT
from pallas.downstreams.usable_results import UsableResult, usable_result

both_eras = pytest.mark.parametrize("version", [HANDSHAKE, MODERN])
EMPTY = {"type": "object", "properties": {}}
SOUND = {"name": "sound", "inputSchema": EMPTY}


def listed(*tools: Any, version: str = HANDSHAKE) -> tuple[list[Any], list[str]]:
    """The tools that are left, and the findings."""
    made, said = usable("tools/list", whole(version, tools=list(tools)), version)
    return made["tools"], said


UNFIT_TOOLS: list[tuple[Any, str]] = [
    (7, "tool 2: it is a number, not an object"),
    (None, "tool 2: it is null, not an object"),
    ("alpha", "tool 2: it is a text, not an object"),
    ({"inputSchema": EMPTY}, "tool 2: it has no name"),
    ({"name": None, "inputSchema": EMPTY}, "tool 2: its name should be a valid string"),
    ({"name": 5, "inputSchema": EMPTY}, "tool 2: its name should be a valid string"),
    ({"name": "odd", "inputSchema": "{}"}, "tool odd: its inputSchema is a text, not an object"),
    ({"name": "odd", "inputSchema": True}, "tool odd: its inputSchema is true, not an object"),
    ({"name": "odd", "inputSchema": [EMPTY]}, "tool odd: its inputSchema is a list, not an object"),
    (
        {"name": "odd", "inputSchema": {"type": "array"}},
        'tool odd: its inputSchema is of the type "array", not object',
    ),
    ({"name": "odd", "inputSchema": {"type": 5}}, "tool odd: its inputSchema is of the type 5, not object"),
]


@both_eras
@pytest.mark.parametrize(("tool", "said"), UNFIT_TOOLS)
def test_an_unfit_tool_is_left_out_by_name_or_place_and_the_others_stay(
    tool: Any, said: str, version: str
) -> None:
    last = {**SOUND, "name": "last"}
    assert listed(SOUND, tool, last, version=version) == ([SOUND, last], [said])


TOO_LARGE_TOOLS: list[tuple[dict[str, Any], dict[str, Any] | None, str]] = [
    (
        {"description": "d" * (MAX_TEXT + 1)},
        {"description": "d" * MAX_TEXT},
        "its description has 65,537 characters; the first 65,536 are used",
    ),
    ({"title": "t" * (MAX_TEXT + 1)}, {}, "its title has 65,537 characters, 65,536 at most are allowed"),
    ({"_meta": {"a": "m" * MAX_TEXT}}, {}, "its _meta has 65,545 characters, 65,536 at most are allowed"),
    ({"name": "n" * 1_001}, None, "its name has 1,001 characters, 1,000 at most are allowed"),
    (
        {"inputSchema": {"type": "object", "title": "t" * MAX_SCHEMA}},
        None,
        "its inputSchema has 1,048,607 characters, 1,048,576 at most are allowed",
    ),
]


@pytest.mark.parametrize(("keys", "made", "said"), TOO_LARGE_TOOLS, ids=lambda value: str(value)[:20])
def test_what_is_too_large_in_a_tool_costs_that_part_or_the_tool(
    keys: dict[str, Any], made: dict[str, Any] | None, said: str
) -> None:
    tools, findings = listed(SOUND, {"name": "large", "inputSchema": EMPTY, **keys})
    assert tools == [SOUND, *([] if made is None else [{"name": "large", "inputSchema": EMPTY, **made}])]
    assert [each.partition(": ")[2] for each in findings] == [said]


REPAIRED_TOOLS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, EMPTY, "it has no inputSchema, and is offered without arguments"),
    ({"inputSchema": None}, EMPTY, "it has no inputSchema, and is offered without arguments"),
    ({"inputSchema": []}, EMPTY, "it has an empty list as its inputSchema, and is offered without arguments"),
    ({"input_schema": EMPTY}, EMPTY, "its inputSchema is called input_schema"),
    (
        {"inputSchema": {"anyOf": [{"type": "object"}]}},
        {"anyOf": [{"type": "object"}], "type": "object"},
        "its inputSchema has no type; it is taken as that of an object",
    ),
    (
        {"inputSchema": {"type": ["object", "null"]}},
        {"type": "object"},
        'its inputSchema is of the type ["object", "null"], not object',
    ),
    (
        {"inputSchema": {"type": "object", "properties": []}},
        EMPTY,
        "its inputSchema.properties is a list, not an object",
    ),
    (
        {"inputSchema": {"type": "object", "properties": {"a": "string", "b": False}}},
        {"type": "object", "properties": {"a": {}, "b": False}},
        "its inputSchema.properties.a is a text, not a schema; it takes any value",
    ),
    (
        {"inputSchema": {"type": "object", "required": ["a", 1]}},
        {"type": "object", "required": ["a"]},
        "its inputSchema.required is not a list of texts",
    ),
    ({"inputSchema": {**EMPTY, "$schema": 7}}, EMPTY, "its inputSchema.$schema is not a text"),
]


@both_eras
@pytest.mark.parametrize(("given", "schema", "said"), REPAIRED_TOOLS)
def test_a_schema_whose_meaning_is_clear_is_repaired(
    given: dict[str, Any], schema: dict[str, Any], said: str, version: str
) -> None:
    (tool,), found = listed({"name": "odd", **given}, version=version)
    assert tool["inputSchema"] == schema
    assert found == [f"tool odd: {said}"]


@both_eras
def test_a_schema_of_no_dialect_is_one_without_that_key(version: str) -> None:
    (tool,), found = listed({"name": "odd", "inputSchema": {**EMPTY, "$schema": None}}, version=version)
    assert (tool["inputSchema"], found) == (EMPTY, [])


@both_eras
@pytest.mark.parametrize(
    ("keys", "kept", "part"),
    [
        (
            {"annotations": {"title": 5, "destructiveHint": True}},
            {"annotations": {"destructiveHint": True}},
            "annotations.title",
        ),
        ({"annotations": [1]}, {}, "annotations"),
        ({"icons": [{"src": "data:,"}, {"theme": "dark"}]}, {"icons": [{"src": "data:,"}]}, "icons.1"),
        ({"icons": "x.png"}, {}, "icons"),
        ({"title": 5}, {}, "title"),
        ({"description": ["a"]}, {}, "description"),
        ({"_meta": []}, {}, "_meta"),
        ({"execution": {"taskSupport": "maybe"}}, {"execution": {}}, "execution.taskSupport"),
    ],
)
def test_a_wrong_detail_costs_itself_alone(
    keys: dict[str, Any], kept: dict[str, Any], part: str, version: str
) -> None:
    made = usable_result("tools/list", whole(version, tools=[{**SOUND, **keys}]), version)
    assert made.result is not None
    assert made.result["tools"] == [{**SOUND, **kept}]
    (found,) = made.findings
    assert (found.kind, found.name, found.part) == ("tool", "sound", part)
    assert found.why.startswith(f"its {part} ")


def test_output_schemas_are_taken_off_and_handed_back() -> None:
    schema = {"type": "object", "properties": {"rows": {"type": "integer"}}}
    raw = {"tools": [{**SOUND, "outputSchema": schema}, {**SOUND, "name": "plain", "outputSchema": None}]}
    made = usable_result("tools/list", raw, HANDSHAKE)
    assert made == UsableResult(
        {"tools": [SOUND, {**SOUND, "name": "plain"}]}, output_schemas={"sound": schema}
    )
    assert "outputSchema" in raw["tools"][0]


@pytest.mark.parametrize(
    ("schema", "version", "why"),
    [
        ("rows", MODERN, "its outputSchema is a text, not an object; its results are not checked"),
        (True, HANDSHAKE, "its outputSchema is true, not an object; its results are not checked"),
        (
            {"type": "array"},
            HANDSHAKE,
            'its outputSchema is of the type "array", not object; its results are not checked',
        ),
        ({"type": "array"}, MODERN, ""),  # any type there
    ],
)
def test_an_unfit_output_schema_costs_the_check_and_not_the_tool(schema: Any, version: str, why: str) -> None:
    made = usable_result("tools/list", whole(version, tools=[{**SOUND, "outputSchema": schema}]), version)
    assert made.result is not None and made.result["tools"] == [SOUND]
    assert made.findings == ((LeftOut("tool", "sound", why, "outputSchema"),) if why else ())
    assert made.output_schemas == ({} if why else {"sound": schema})


def test_a_tool_that_the_sdk_would_drop_for_its_headers_is_named() -> None:
    odd = {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": {"x-mcp-header": "a b"}}}}
    tools, (said,) = listed(SOUND, odd, version=MODERN)
    assert tools == [SOUND] and said.startswith("tool odd: its inputSchema has an unfit x-mcp-header")
    assert listed(SOUND, odd) == ([SOUND, odd], [])


@both_eras
@pytest.mark.parametrize(
    ("key", "value", "names", "said"),
    [
        ("tools", None, [], "it has no tools"),
        ("tools", "none", [], "it has no list of tools, but a text"),
        (
            "tools",
            {"a": {"inputSchema": EMPTY}, "1": SOUND},
            ["a", "sound"],
            "its tools are an object, not a list; its values are taken",
        ),
        ("tools", SOUND, ["sound"], "its tools are one object, not a list"),
        ("nextCursor", 7, ["sound"], "its nextCursor is a number, not a text"),
        ("nextCursor", [7], ["sound"], "its nextCursor is a list; no further page is listed"),
        ("_meta", "x", ["sound"], "its _meta should be a valid dictionary"),
        ("ttlMs", "soon", ["sound"], None),
        ("ttlMs", -5, ["sound"], None),
        ("cacheScope", "team", ["sound"], None),
        ("resultType", 1, ["sound"], None),
    ],
)
def test_a_wrong_key_of_a_list_costs_itself_alone(
    key: str, value: Any, names: list[str], said: str | None, version: str
) -> None:
    made, found = usable("tools/list", {**whole(version, tools=[SOUND]), key: value}, version)
    assert [each["name"] for each in made["tools"]] == names
    (why,) = found
    assert why.startswith(f"result: {said or f'its {key} '}")


@both_eras
@pytest.mark.parametrize("cursor", ["", None, "2"])
def test_an_empty_cursor_is_a_cursor_and_null_is_none(cursor: str | None, version: str) -> None:
    raw = whole(version, tools=[SOUND], nextCursor=cursor)
    assert usable("tools/list", raw, version) == (raw, [])


def test_a_number_as_cursor_is_asked_for_as_text() -> None:
    made, _ = usable("tools/list", {"tools": [], "nextCursor": 7})
    assert made["nextCursor"] == "7"


def test_the_newer_version_without_its_cache_keys_is_not_cached_and_not_reported() -> None:
    made, found = usable("tools/list", {"tools": [SOUND]}, MODERN)
    assert made == whole(MODERN, tools=[SOUND]) and found == []


@both_eras
@pytest.mark.parametrize(
    ("method", "key", "sound", "odd", "said"),
    [
        ("prompts/list", "prompts", {"name": "a"}, {"title": "b"}, "prompt 2: it has no name"),
        ("prompts/list", "prompts", {"name": "a"}, 5, "prompt 2: it is a number, not an object"),
        (
            "resources/list",
            "resources",
            {"name": "a", "uri": "mem://a"},
            {"name": "b"},
            "resource b: it has no uri",
        ),
        (
            "resources/list",
            "resources",
            {"name": "a", "uri": "mem://a"},
            {"name": "b", "uri": 5},
            "resource b: its uri should be a valid string",
        ),
        (
            "resources/templates/list",
            "resourceTemplates",
            {"name": "a", "uriTemplate": "a:{b}"},
            {"name": "b", "uri": "a"},
            "resource template b: it has no uriTemplate",
        ),
    ],
)
def test_an_unfit_prompt_or_resource_is_left_out(
    method: str, key: str, sound: dict[str, Any], odd: Any, said: str, version: str
) -> None:
    made, found = usable(method, whole(version, **{key: [sound, odd]}), version)
    assert made[key] == [sound] and found == [said]


def test_a_resource_without_a_name_is_called_by_its_address() -> None:
    made, found = usable("resources/list", {"resources": [{"uri": "mem://a"}, {"uri": "mem://b", "name": 5}]})
    assert [each["name"] for each in made["resources"]] == ["mem://a", "mem://b"]
    assert found == [
        "resource mem://a: it has no name",
        "resource mem://b: its name is a number, not a text",
    ]


@both_eras
def test_two_tools_of_one_name_are_both_there(version: str) -> None:
    again = {**SOUND, "description": "again"}
    assert listed(SOUND, again, version=version) == ([SOUND, again], [])


def test_an_unfit_argument_of_a_prompt_costs_itself_alone() -> None:
    arguments = [{"name": "a", "required": "perhaps"}, {"title": "b"}, 5]
    made, found = usable("prompts/list", {"prompts": [{"name": "p", "arguments": arguments}]})
    assert made["prompts"] == [{"name": "p", "arguments": [{"name": "a"}]}]
    assert len(found) == 3


ASKS: dict[str, Any] = {"resultType": "input_required", "requestState": "a"}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_result_that_asks_for_input_is_not_changed(method: str) -> None:
    assert usable(method, ASKS, MODERN) == (ASKS, [])
    odd = usable_result(method, {**ASKS, "inputRequests": {"a": {"method": "dance"}}}, MODERN)
    assert odd.result is None and odd.problem.startswith("it asks for input, but its ")


def test_a_result_that_asks_for_nothing_is_complete() -> None:
    raw = {"content": ["one"], "resultType": "input_required"}
    made, found = usable("tools/call", raw, MODERN)
    assert made == {"content": [{"type": "text", "text": "one"}], "resultType": "complete"}
    assert found[0] == "result: its resultType is input_required, but it asks for nothing"


@both_eras
def test_values_of_a_completion_are_bounded(version: str) -> None:
    for values, kept in ((["a"] * 200, 100), (["a", 5], 1), (None, 0)):
        raw = {"completion": {"values": values, "total": "many"}, "resultType": "complete"}
        made, found = usable("completion/complete", raw, version)
        assert len(made["completion"]["values"]) == kept and "total" not in made["completion"] and found


@pytest.mark.parametrize(
    ("method", "raw"),
    [("tools/call", None), ("tools/call", True), ("prompts/get", []), ("tools/list", "x"), ("tools/list", 5)],
)
@both_eras
def test_a_result_that_is_no_object_is_refused_with_a_reason(method: str, raw: Any, version: str) -> None:
    made = usable_result(method, raw, version)
    assert made.result is None and made.problem.endswith(", not an object")


@pytest.mark.parametrize(
    ("raw", "text"), [("x", "x"), (5, "5"), (["x"], '["x"]'), ([{"type": "text", "text": "x"}], "x")]
)
@both_eras
def test_a_bare_result_of_a_call_is_its_content(raw: Any, text: str, version: str) -> None:
    made = usable_result("tools/call", raw, version)
    assert made.result is not None and made.findings
    assert [each["text"] for each in made.result["content"]] == [text]


def test_a_result_with_too_many_parts_is_refused() -> None:
    made = usable_result(
        "tools/call", {"content": [{"type": "text", "text": "a"}] * (MAX_PARTS + 1)}, HANDSHAKE
    )
    assert made.result is None and "content parts" in made.problem


@both_eras
def test_of_a_page_with_too_many_items_the_first_are_used(version: str) -> None:
    tools = [{"name": f"t{place}", "inputSchema": {"type": "object"}} for place in range(MAX_ENTRIES + 1)]
    made = usable_result("tools/list", {"tools": tools}, version)
    assert made.result is not None and len(made.result["tools"]) == MAX_ENTRIES
    assert "result tools: it lists 10,001 tools at once; the first 10,000 are used" in map(str, made.findings)


def test_findings_are_bounded_counted_and_safe_to_show() -> None:
    tools = [{"name": f"\x1b[31m{place}\n" + "x" * 5_000, "inputSchema": 5} for place in range(250)]
    made = usable_result("tools/list", {"tools": [SOUND, *tools]}, HANDSHAKE)
    assert made.result == {"tools": [SOUND]}
    assert (len(made.findings), made.more) == (100, 150)
    assert made.findings[0].name == "␛[31m0"
    assert max(len(str(each)) for each in made.findings) < 450


def test_results_of_methods_that_the_sdk_does_not_know_are_not_changed() -> None:
    raw = {"anything": [1], "_meta": 5}
    assert usable_result("skills/list", raw, MODERN) == UsableResult(raw)
