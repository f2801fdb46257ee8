"""What servers say of their tools, and how they list them.

A tool that ``add_unfit`` adds may be left out, by name. ``why`` is set by a fault that may cost the whole
server. All other tools must work.
"""

from random import Random
from typing import Any, Final

from .odd_servers import WHOLE, Faults, OddServer, OddTool, short

TOOL_FAULTS: Final = Faults()


# What a server says of its tools.


@TOOL_FAULTS.kind("input-schema")
def _input_schema(server: OddServer, rng: Random) -> str:
    schema: Any = rng.choice([..., None, [], True, False, "object", {"type": "string"}, {"type": ["object"]}])
    server.add_unfit(rng, inputSchema=schema)
    return short(schema)


@TOOL_FAULTS.kind("careless-schema")
def _careless_schema(server: OddServer, rng: Random) -> str:
    whole = {"type": "object", "properties": {}}
    more: Any = rng.choice(
        [
            {},
            {"properties": {}},
            {**whole, "required": None},
            {**whole, "properties": None},
            {**whole, "$schema": 7},
        ]
    )
    server.add_unfit(rng, inputSchema=more)
    return short(more)


@TOOL_FAULTS.kind("bare-schema")
def _bare_schema(server: OddServer, rng: Random) -> str:
    schema: Any = rng.choice([{"type": "object"}, {"type": "object", "properties": {}, "required": []}])
    server.add(rng, inputSchema=schema)
    return short(schema)


@TOOL_FAULTS.kind("output-schema")
def _output_schema(server: OddServer, rng: Random) -> str:
    schema: Any = rng.choice([{"type": "array"}, [], "object", True, {"type": 5}, {"$ref": "#/nowhere"}])
    tool = server.add_unfit(rng, outputSchema=schema)
    tool.reads = (_what_or_why(tool),)
    return short(schema)


@TOOL_FAULTS.kind("output-misfit")
def _output_misfit(server: OddServer, rng: Random) -> str:
    tool = server.add(
        rng, outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    )
    tool.reads = (_what_or_why(tool),)
    given: Any = rng.choice([..., None, {}, {"n": "one"}, {"m": 1}])
    if given is not ...:
        tool.result["structuredContent"] = given
    return short(given)


def _what_or_why(tool: OddTool) -> str:
    """A pattern of what a tool answers, and of what is wrong with that."""
    return f"{tool.key}|schema|valid|fit"


@TOOL_FAULTS.kind("top-combinator")
def _top_combinator(server: OddServer, rng: Random) -> str:
    one: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
    key = rng.choice(["anyOf", "oneOf", "allOf", "$ref"])
    schema: dict[str, Any] = (
        {"$ref": "#/$defs/it", "$defs": {"it": one}} if key == "$ref" else {key: [one, {"type": "object"}]}
    )
    if rng.random() < 0.5:
        schema["type"] = "object"
    server.add_unfit(rng, inputSchema=schema)
    return f"{key}, {'with' if 'type' in schema else 'without'} type"


@TOOL_FAULTS.kind("hints")
def _hints(server: OddServer, rng: Random) -> str:
    key, value = rng.choice(
        [
            ("annotations", {"title": 5}),
            ("annotations", "read only"),
            ("annotations", {"readOnlyHint": "no"}),
            ("icons", {}),
            ("icons", [{"url": 1}]),
            ("title", 7),
            ("_meta", []),
            ("execution", "never"),
            ("description", 5),
            ("description", ["many", "lines"]),
        ]
    )
    server.add_unfit(rng, **{key: value})
    return f"{key} {short(value)}"


@TOOL_FAULTS.kind("long-description")
def _long_description(server: OddServer, rng: Random) -> str:
    size = rng.choice([100_000, 1_000_000, 10_000_000])
    tool = server.add(rng)
    word = rng.choice(["word ", "x", "größe 搜索 "])
    tool.item["description"] += (word * (size // len(word) + 1))[:size]
    server.remark = f"description has {len(tool.item['description']):,} characters"
    return f"{len(tool.item['description']):,} characters"


@TOOL_FAULTS.kind("nameless")
def _nameless(server: OddServer, rng: Random) -> str:
    name = rng.choice([..., "", None, 5, ["a"]])
    server.add_unfit(rng, name=name)
    return short(name)


@TOOL_FAULTS.kind("strange-name")
def _strange_name(server: OddServer, rng: Random) -> str:
    name = rng.choice(
        [
            "a.b",
            "docs/read",
            "say it",
            "größe",
            "搜索",
            "n" * 200,
            "a__b",
            "-dash",
            "a\tb",
            "😀",
            "x" * 64,
            "a:b",
        ]
    )
    server.add(rng, name=name)
    return short(name)


@TOOL_FAULTS.kind("twins")
def _twins(server: OddServer, rng: Random) -> str:
    how = rng.choice(["equal", "64 equal characters", "case", "dot and underscore"])
    if how == "equal":
        server.add(rng, name="twin", at=len(server.tools))
        server.tools.append(server.tools[-1])
    elif how == "case":
        server.add(rng, name="Twin")
        server.add(rng, name="twin")
    elif how == "dot and underscore":
        server.add(rng, name="twin.one")
        server.add(rng, name="twin_one")
    else:
        server.add(rng, name="t" * 64 + "-one")
        server.add(rng, name="t" * 64 + "-two")
    return how


@TOOL_FAULTS.kind("no-tool")
def _no_tool(server: OddServer, rng: Random) -> str:
    item: Any = rng.choice([None, "alpha", 5, [], {}])
    tool = server.add_unfit(rng)
    tool.item = item
    return short(item)


@TOOL_FAULTS.kind("deep")
def _deep(server: OddServer, rng: Random) -> str:
    depth = rng.choice([20, 40, 80])
    server.add_unfit(rng, inputSchema=_nested(depth))
    return str(depth)


@TOOL_FAULTS.kind("too-deep", excludes=WHOLE)
def _too_deep(server: OddServer, rng: Random) -> str:
    server.add_unfit(rng, inputSchema=_nested(300))
    server.why = "JSON|parse|deep|nest|recursion|valid|answer|respon|in time"
    return ""


def _nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"in": schema}}
    return schema


@TOOL_FAULTS.kind("nulls")
def _nulls(server: OddServer, rng: Random) -> str:
    keys = rng.sample(["title", "outputSchema", "annotations", "_meta", "icons", "execution"], 3)
    server.add(rng, **dict.fromkeys(keys))
    return ", ".join(keys)


@TOOL_FAULTS.kind("old-dialect")
def _old_dialect(server: OddServer, rng: Random) -> str:
    dialect = rng.choice(["http://json-schema.org/draft-04/schema#", "https://odd.test/dialect", "", None])
    tool = server.add(rng)
    tool.item["inputSchema"] = {"$schema": dialect, **tool.item["inputSchema"]}
    return short(dialect)


# How its tools are listed.


@TOOL_FAULTS.kind("pages", excludes="page")
def _pages(server: OddServer, rng: Random) -> str:
    server.pages = rng.randint(2, 4)
    if is_empty := rng.random() < 0.4:
        server.wire["empty_pages"] = True
    last = rng.choice([..., None, ""])
    if last is not ...:
        server.page["nextCursor"] = last
    return f"{server.pages}{', some empty' if is_empty else ''}, last cursor {short(last)}"


@TOOL_FAULTS.kind("no-last-page", excludes="page")
def _no_last_page(server: OddServer, rng: Random) -> str:
    server.remark = "cursor|page|list"
    how = rng.choice(["the same cursor", "a circle", "new cursors"])
    server.pages = 2
    server.page["nextCursor"] = {"the same cursor": "page-1", "a circle": "", "new cursors": "more"}[how]
    if how == "a circle":
        server.pages, server.page["nextCursor"] = 3, "page-1"
    server.wire["endless"] = how == "new cursors"
    return how


@TOOL_FAULTS.kind("other-lists", excludes="side")
def _other_lists(server: OddServer, rng: Random) -> str:
    names = rng.choice([["prompts"], ["resources"], ["prompts", "resources"]])
    how = rng.choice(["not there", "fails", "null", "unfit", "dies"])
    answer = {
        "not there": {"error": "Method not found", "code": -32601},
        "fails": {"error": "the index is broken", "code": -32603},
        "null": dict.fromkeys(names),
        "unfit": {name: [{"name": 5}, None] for name in names},
        "dies": "breaks",
    }[how]
    if how != "dies":  # else it does not announce what it dies of
        is_announced = server.announce(**{name: {} for name in names})
        # An agent lists resources when it needs one.
        server.remark = "prompt" if is_announced and "prompts" in names else ""
    methods = [f"{name}/list" for name in names]
    if "resources" in names:
        methods.append("resources/templates/list")
    server.wire["side"] = dict.fromkeys(methods, answer)
    return f"{' and '.join(names)}: {how}"


@TOOL_FAULTS.kind("too-much", excludes="side")
def _too_much(server: OddServer, rng: Random) -> str:
    count = rng.choice([10_001, 10_050])
    if server.announce(prompts={}):
        server.remark = "first 10,000"
    server.wire["side"] = {"prompts/list": {"prompts": [{"name": f"p{number}"} for number in range(count)]}}
    return f"{count:,} prompts"


@TOOL_FAULTS.kind("first-lists-fail")
def _first_lists_fail(server: OddServer, rng: Random) -> str:
    count = rng.randint(1, 2)
    server.wire["steps"] = {"count": count}
    return str(count)


# Nothing can be used of these servers.


@TOOL_FAULTS.kind("lists-nothing", excludes=WHOLE)
def _lists_nothing(server: OddServer, rng: Random) -> str:
    server.wire["tools_error"] = "the index of this server is being rebuilt"
    server.why = "index of this server is being rebuilt"
    return ""


@TOOL_FAULTS.kind("only-unfit-tools", excludes=WHOLE)
def _only_unfit_tools(server: OddServer, rng: Random) -> str:
    server.tools = []
    schema: Any = rng.choice([None, [], "object"])
    names = [server.add_unfit(rng, inputSchema=schema).item["name"] for _ in range(2)]
    server.why = "|".join(names)
    return short(schema)
