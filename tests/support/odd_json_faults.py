"""How the JSON of messages differs from JSON-RPC, and what servers ask of the messages that they get."""

from random import Random
from typing import Any, Final

from .odd_servers import HANDSHAKE, STREAMS, WHOLE, Faults, OddServer, short

JSON_FAULTS: Final = Faults()
_LOG: Final = (
    '{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}'
)


# Messages that are nearly JSON-RPC.


@JSON_FAULTS.kind("float-id", excludes="id")
def _float_id(server: OddServer, rng: Random) -> str:
    server.wire["float_id"] = True
    return ""


@JSON_FAULTS.kind("no-jsonrpc")
def _no_jsonrpc(server: OddServer, rng: Random) -> str:
    server.wire["jsonrpc"] = rng.choice([None, "1.0", 2.0, "2"])
    return short(server.wire["jsonrpc"])


@JSON_FAULTS.kind("all-keys")
def _all_keys(server: OddServer, rng: Random) -> str:
    """As serialisers write that leave out no null."""
    server.wire["all_keys"] = True
    server.wire.setdefault("before", []).append(
        {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
    )
    if server.transport not in STREAMS:
        del server.wire["before"]
    return ""


@JSON_FAULTS.kind("lone-surrogate", excludes="bytes")
def _lone_surrogate(server: OddServer, rng: Random) -> str:
    """Half of an emoji, as a text that was cut by UTF-16 units has it."""
    server.wire["ascii"] = True
    half = rng.choice(["\ud83d", "\udc4d", "\ud83d\ud83d"])
    if rng.random() < 0.5:
        server.add_result(rng, {"content": [{"type": "text", "text": f"cut 4711 {half}"}]}, "cut 4711")
        return "result"
    server.add(rng).item["description"] += f" {half}"
    return "description"


@JSON_FAULTS.kind("broken-bytes", excludes="bytes")
def _broken_bytes(server: OddServer, rng: Random) -> str:
    """Texts in another encoding than UTF-8, which nothing announces."""
    server.wire["encoding"] = "latin-1"
    server.add_result(
        rng, {"content": [{"type": "text", "text": "4711 \xe4\xf6\xfc \xdf end"}]}, "4711", "end"
    )
    return "latin-1"


@JSON_FAULTS.kind("other-encoding", on=("http-json", "http-modern"), excludes="bytes")
def _other_encoding(server: OddServer, rng: Random) -> str:
    server.wire["encoding"] = rng.choice(["utf-16", "utf-16-le", "utf-8-sig"])
    return str(server.wire["encoding"])


@JSON_FAULTS.kind("line-separators", excludes="bytes")
def _line_separators(server: OddServer, rng: Random) -> str:
    """Characters that some readers of lines take for the end of a line."""
    odd = rng.choice(["\u2028", "\u2029", "\x85", "\u2028\u2028\x85"])
    server.add_result(
        rng, {"content": [{"type": "text", "text": f"first 4711{odd}second 4712"}]}, "4711", "4712"
    )
    return short(odd)


@JSON_FAULTS.kind("controls")
def _controls(server: OddServer, rng: Random) -> str:
    odd = rng.choice(["\x00", "\x1b[31mred\x1b[0m", "\x07\x08", "\x7f", "\ufffe", "\u202e"])
    server.add_result(rng, {"content": [{"type": "text", "text": f"4711 {odd} 4712"}]}, "4711", "4712")
    return short(odd)


@JSON_FAULTS.kind("raw-controls", excludes="bytes")
def _raw_controls(server: OddServer, rng: Random) -> str:
    """A tab within a JSON string that is not escaped, as of templates of strings."""
    server.wire["raw_tabs"] = True
    server.add_result(rng, {"content": [{"type": "text", "text": "4711\t4712"}]}, "4711", "4712")
    return ""


@JSON_FAULTS.kind("run-together", excludes="framing")
def _run_together(server: OddServer, rng: Random) -> str:
    """A notification and the answer in one line, one body, or one event."""
    between = rng.choice(["", " "]) if server.transport == "stdio" else rng.choice(["", "\n", " "])
    server.wire["prefix"] = _LOG + between
    return short(between)


@JSON_FAULTS.kind("prefixed", on=("stdio",), excludes="framing")
def _prefixed(server: OddServer, rng: Random) -> str:
    server.wire["prefix"] = rng.choice(["\x1b]0;npm\x07", "\x1b[0m", "Loading... ", "\r", "\x00"])
    return short(server.wire["prefix"])


@JSON_FAULTS.kind("suffixed", on=("stdio",), excludes="framing")
def _suffixed(server: OddServer, rng: Random) -> str:
    server.wire["suffix"] = rng.choice(["\x1b[0m", " done", "\x00", ";"])
    return short(server.wire["suffix"])


@JSON_FAULTS.kind("pretty", on=("stdio",), excludes=WHOLE)
def _pretty(server: OddServer, rng: Random) -> str:
    """Messages that are spread over lines."""
    server.wire["indent"] = rng.choice([1, 2])
    server.why = "JSON|stdout|answer|respon"
    return ""


@JSON_FAULTS.kind("headers", on=("stdio",), excludes=WHOLE)
def _headers(server: OddServer, rng: Random) -> str:
    """Framing of the Language Server Protocol."""
    server.wire |= {"content_length": True, "end": ""}
    server.why = "JSON|stdout|answer|respon|length"
    return ""


# Results that are not objects, or of older versions.


@JSON_FAULTS.kind("bare-result")
def _bare_result(server: OddServer, rng: Random) -> str:
    result: Any = rng.choice([[{"type": "text", "text": "bare 4711"}], "bare 4711", 4711, ["bare 4711"]])
    server.add_result(rng, result, "4711")
    return short(result)


@JSON_FAULTS.kind("no-result")
def _no_result(server: OddServer, rng: Random) -> str:
    tool = server.add(rng)
    tool.result, tool.reads = rng.choice([None, True]), (r"\w",)
    return short(tool.result)


@JSON_FAULTS.kind("old-result")
def _old_result(server: OddServer, rng: Random) -> str:
    """``toolResult`` is that of the version of October 2024."""
    given: Any = rng.choice(["old 4711", {"rows": 4711}, [4711]])
    server.add_result(rng, rng.choice([{"toolResult": given}, {"output": given}]), "4711")
    return short(given)


@JSON_FAULTS.kind("odd-text")
def _odd_text(server: OddServer, rng: Random) -> str:
    block: Any = rng.choice(
        [
            {"type": "text", "text": 4711},
            {"type": "text", "text": {"rows": 4711}},
            {"type": "text", "text": ["4711"]},
            {"type": "Text", "text": "4711"},
            {"type": "text", "content": "4711"},
            {"type": "json", "json": {"rows": 4711}},
            {"type": "text", "value": "4711"},
        ]
    )
    server.add_result(rng, {"content": [block]}, "4711")
    return short(block)


@JSON_FAULTS.kind("empty-parts")
def _empty_parts(server: OddServer, rng: Random) -> str:
    empty = {"type": "text", "text": rng.choice(["", " ", "\n"])}
    content = [empty, {"type": "text", "text": "4711"}, empty]
    server.add_result(rng, {"content": content}, "4711")
    return short(empty["text"])


@JSON_FAULTS.kind("huge-text")
def _huge_text(server: OddServer, rng: Random) -> str:
    size = rng.choice([200_000, 3_000_000])
    server.add_result(rng, {"content": [{"type": "text", "text": "begins 4711 " + "x" * size}]}, "4711")
    return f"{size:,}"


@JSON_FAULTS.kind("odd-pictures")
def _odd_pictures(server: OddServer, rng: Random) -> str:
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    kind, data = rng.choice(
        [
            ("image/jpg", "/9j/4AAQSkZJRgABAQEASABIAAD/2Q=="),
            ("image/svg+xml", "PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="),
            ("image/jpeg", pixel),
            ("IMAGE/PNG", pixel),
            ("png", pixel),
            ("image/png; charset=binary", pixel),
            ("image/png", "data:image/png;base64," + pixel),
            ("image/bmp", "Qk0eAAAAAAAAABoAAAAMAAAAAQABAAEAGAAAAP8A"),
            ("image/heic", "AAAAGGZ0eXBoZWlj"),
            ("application/pdf", "JVBERi0xLjQK"),
            ("", pixel),
        ]
    )
    beside = {"type": "text", "text": "beside it"}
    server.add_result(
        rng, {"content": [beside, {"type": "image", "mimeType": kind, "data": data}]}, "beside it"
    )
    return f"{kind} {data[:12]}"


@JSON_FAULTS.kind("sign-in-error")
def _sign_in_error(server: OddServer, rng: Random) -> str:
    """A call that needs a person at an address, which only the data of the error names."""
    data = {"elicitations": [{"mode": "url", "url": "https://odd.test/sign-in", "message": "Sign in"}]}
    tool = server.add(rng)
    tool.result = {"odd_error": {"code": -32042, "message": "This needs 4711", "data": data}}
    tool.reads = ("This needs 4711", "https://odd.test/sign-in")
    return ""


@JSON_FAULTS.kind("modern-fields", on=("http-modern",), excludes="page")
def _modern_fields(server: OddServer, rng: Random) -> str:
    odd: Any = rng.choice(
        [
            {"resultType": None},
            {"resultType": "finished"},
            {"resultType": 5},
            {"ttlMs": -1},
            {"ttlMs": "soon"},
            {"ttlMs": 10**30},
            {"cacheScope": "shared"},
            {"cacheScope": None, "ttlMs": None},
        ]
    )
    server.page |= odd
    return short(odd)


# How tools are described and listed.


@JSON_FAULTS.kind("odd-properties")
def _odd_properties(server: OddServer, rng: Random) -> str:
    odd: Any = rng.choice(
        [
            {"description": None}, {"type": "string", "required": True}, {"type": "string", "enum": []},
            {"enum": ["a", None, 1]}, {"type": ["string", "integer"]}, {"type": "string", "default": None},
            {"type": "integer", "format": "uint32"}, {"const": "a"}, {"type": "string", "nullable": True},
            {"type": "str"}, {"type": "int"}, {"type": "any"}, {"type": "OBJECT"}, {"type": "array"},
            {"type": "array", "items": [{"type": "string"}]}, {"type": "array", "items": {}}, {"type": None},
            {"type": "string", "pattern": "(?<=a)b"}, {"type": "string", "pattern": "["}, {"type": ""},
            {"type": "string", "maxLength": "10"}, {"type": "number", "minimum": "0"}, {"anyOf": []},
            {"type": "string", "title": 5}, {"type": "string", "examples": "a"}, {"type": "file"},
            {"type": "object", "properties": {}, "required": ["b"]}, {"oneOf": [{"const": 1}, {"const": 2}]},
            {"type": "object", "additionalProperties": False}, {"not": {}}, {"type": "string", "format": 5},
            {"type": "object", "properties": [{"name": "b"}]}, [], None, "string", False, True, {},
            {"type": "object", "additionalProperties": "no"}, {"type": "string", "enum": "a"}, {"oneOf": {}},
            {"$ref": "#/$defs/gone"}, {"$ref": "other.json"}, {"type": "array", "items": {"required": "a"}},
            {"type": "object", "patternProperties": {"[": {}}}, {"multipleOf": 0}, {"uniqueItems": "yes"},
            {"type": "array", "prefixItems": []}, {"type": "object", "dependentRequired": ["a"]},
        ]
    )  # fmt: skip
    key = rng.choice(["a", "$filter", "a b", "größe", "-x", "a.b", "x" * 70, "a[]", ""])
    tool = server.add_unfit(rng)
    tool.item["inputSchema"]["properties"][key] = odd
    if rng.random() < 0.3:
        tool.item["inputSchema"]["required"] = rng.choice([[key], ["nowhere"], "a", [key, key], [5], {}])
    return f"{key}: {short(odd)}"


@JSON_FAULTS.kind("no-description")
def _no_description(server: OddServer, rng: Random) -> str:
    value: Any = rng.choice([..., None, "", " "])
    server.add(rng, description=value)
    return short(value)


@JSON_FAULTS.kind("padded-name")
def _padded_name(server: OddServer, rng: Random) -> str:
    name = rng.choice(
        [" read", "read ", "read\n", "\tread", "re ad", "1read", "__read", "read__", "READ", "a\x00b"]
    )
    server.add(rng, name=name)
    return short(name)


@JSON_FAULTS.kind("tools-not-a-list", excludes=WHOLE)
def _tools_not_a_list(server: OddServer, rng: Random) -> str:
    server.wire["tools_as"] = rng.choice(["object", "null", "nothing", "bare"])
    server.why = "tool|list|object"
    return str(server.wire["tools_as"])


@JSON_FAULTS.kind("number-cursors", excludes="page")
def _number_cursors(server: OddServer, rng: Random) -> str:
    server.pages = rng.randint(2, 3)
    server.wire["number_cursors"] = True
    last: Any = rng.choice([..., 0, False, {}])
    if last == 0 and last is not False:
        server.remark = "cursor"
    if last is not ...:
        server.page["nextCursor"] = last
    return f"last {short(last)}"


@JSON_FAULTS.kind("many-tools")
def _many_tools(server: OddServer, rng: Random) -> str:
    count = rng.choice([10, 20])
    for number in range(count):
        server.add(rng, name=f"many_{number}")
    return str(count)


# What it asks of the messages that it gets.


@JSON_FAULTS.kind("needs-params")
def _needs_params(server: OddServer, rng: Random) -> str:
    server.wire["needs_params"] = True
    return ""


@JSON_FAULTS.kind("refuses-meta", on=HANDSHAKE)
def _refuses_meta(server: OddServer, rng: Random) -> str:
    """It validates what it gets more strictly than the protocol."""
    server.wire["refuses_meta"] = True
    return ""


@JSON_FAULTS.kind("refuses-version", on=HANDSHAKE, excludes="version")
def _refuses_version(server: OddServer, rng: Random) -> str:
    """It refuses a version that it does not know instead of offering another one."""
    version = rng.choice(["2024-11-05", "2025-03-26", "2025-06-18"])
    server.hello["protocolVersion"] = version
    said = rng.choice(["data", "text"])
    server.wire["only_version"] = {"version": version, "said": said}
    return f"{version}, in its {said}"


@JSON_FAULTS.kind("hello-version", on=HANDSHAKE, excludes="version")
def _hello_version(server: OddServer, rng: Random) -> str:
    value: Any = rng.choice([..., None, 20250618, 1.0, {"major": 1}, ""])
    server.hello["protocolVersion"] = value
    if value is ...:
        del server.hello["protocolVersion"]
    return short(value)


# What it does beside its answers.


@JSON_FAULTS.kind("no-ping", on=HANDSHAKE)
def _no_ping(server: OddServer, rng: Random) -> str:
    server.wire["ping"] = rng.choice(["silent", "error"])
    if server.transport == "http-json":
        server.wire["ping"] = "error"
    return str(server.wire["ping"])


@JSON_FAULTS.kind("asks-early", on=("stdio",))
def _asks_early(server: OddServer, rng: Random) -> str:
    """It asks something before it answers the request that opens the connection."""
    server.wire["asks_early"] = rng.choice(["ping", "roots/list", "sampling/createMessage", "odd/question"])
    return str(server.wire["asks_early"])


@JSON_FAULTS.kind("cancels", on=STREAMS, excludes="before")
def _cancels(server: OddServer, rng: Random) -> str:
    """It says that a request is cancelled, and answers it."""
    server.wire["cancels"] = True
    return ""
