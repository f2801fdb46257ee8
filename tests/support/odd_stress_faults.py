"""Servers that say too much or something twice, that end in the middle, and HTTP servers that refuse."""

from random import Random
from typing import Any, Final

from .odd_servers import HTTP, STREAMS, WHOLE, Faults, OddServer, short

STRESS_FAULTS: Final = Faults()


# What is much, deep or endless.


@STRESS_FAULTS.kind("schema-references")
def _schema_references(server: OddServer, rng: Random) -> str:
    parts: dict[str, Any] = rng.choice(
        [
            {"$ref": "#/properties/a"},
            {"$ref": "#"},
            {"$ref": "https://odd.test/schema.json"},
            {"$ref": "file:///etc/passwd"},
            {"$ref": "#/nowhere"},
            {"$ref": 5},
            {"$dynamicRef": "#odd"},
        ]
    )
    server.add_unfit(rng, inputSchema={"type": "object", "properties": {"a": parts}})
    return short(parts)


@STRESS_FAULTS.kind("odd-numbers")
def _odd_numbers(server: OddServer, rng: Random) -> str:
    value: Any = rng.choice([10**400, -(10**19), 1e308, float("nan"), float("inf"), -0.0])
    if rng.random() < 0.5:
        limits = {"type": "object", "properties": {"n": {"type": "number", "maximum": value}}}
        server.add_unfit(rng, inputSchema=limits)
        where = "schema"
    else:
        content = [{"type": "text", "text": "beside it"}]
        tool = server.add_result(rng, {"content": content, "structuredContent": {"n": value}}, "beside it")
        # NaN and infinity are no JSON.
        tool.reads = (r"beside it|JSON|number|error|fail|cannot|invalid",)
        where = "result"
    if value != value or value in (float("inf"), 10**400):
        server.why = "JSON|number|answer|parse|valid|respon|in time"
    return f"{where} {str(value)[:12]}"


@STRESS_FAULTS.kind("flood", on=STREAMS)
def _flood(server: OddServer, rng: Random) -> str:
    progress = {"method": "notifications/progress", "params": {"progressToken": "own", "progress": 1}}
    message: Any = rng.choice(
        [
            progress,
            {**progress, "params": {"progressToken": "nobody", "progress": 1}},
            {"method": "notifications/message", "params": {"level": "info", "data": "x" * 100}},
            {"method": "notifications/resources/list_changed"},
        ]
    )
    count = 1_000
    flooding = server.add(rng)
    server.wire["flood_before"] = {"message": message, "count": count, "tool": flooding.name}
    return str(message["method"])


@STRESS_FAULTS.kind("asks-much", on=STREAMS)
def _asks_much(server: OddServer, rng: Random) -> str:
    text = {"type": "text", "text": "x" * 2_000_000}
    params: Any = {"messages": [{"role": "user", "content": text}], "maxTokens": 10**9}
    server.wire |= {"asks": "sampling/createMessage", "asks_params": params}
    return ""


# What is said twice, in pieces, or not to its end.


@STRESS_FAULTS.kind("twice", on=STREAMS)
def _twice(server: OddServer, rng: Random) -> str:
    server.wire["twice"] = True
    return ""


@STRESS_FAULTS.kind("event-of-lines", on=("http-sse",), excludes="events")
def _event_of_lines(server: OddServer, rng: Random) -> str:
    server.wire["indent"] = 1
    return ""


@STRESS_FAULTS.kind("open-end", on=("http-sse",), excludes="events")
def _open_end(server: OddServer, rng: Random) -> str:
    server.wire["event_form"] = rng.choice(["event: message\ndata: {}\n", "data: {}"])
    server.why = "answer|event|stream|respon|in time|closed|broke"
    return short(server.wire["event_form"])


@STRESS_FAULTS.kind("in-pieces", on=("stdio",))
def _in_pieces(server: OddServer, rng: Random) -> str:
    server.wire["piece"] = rng.choice([1, 13])
    server.add_result(rng, {"content": [{"type": "text", "text": "größe 搜索 😀"}]}, "größe 搜索 😀")
    return str(server.wire["piece"])


# What HTTP servers and what is before them answer.


@STRESS_FAULTS.kind("refuses", on=HTTP, excludes=WHOLE)
def _refuses(server: OddServer, rng: Random) -> str:
    status, headers, body = rng.choice(
        [
            (401, {"www-authenticate": 'Bearer resource_metadata="http://169.254.1.1/x"'}, ""),
            (403, {}, "<html>no</html>"),
            (404, {}, "<html>nothing here</html>"),
            (429, {"retry-after": "86400"}, "slow down"),
            (500, {"content-type": "text/html"}, "<html>" + "x" * 100_000),
            (502, {"content-type": "text/html"}, "<html>Bad Gateway</html>"),
            (204, {}, ""),
            (202, {}, ""),
            (302, {"location": "/login"}, ""),
            (307, {"location": "http://odd.test/mcp"}, ""),
            (308, {"location": ""}, ""),
            (200, {"content-type": "application/json"}, ""),
            (200, {"content-type": "application/json"}, '{"a": '),
            (200, {"content-type": "text/event-stream"}, ""),
            (200, {"content-type": "image/png"}, "\x89PNG"),
            (418, {}, ""),
        ]
    )
    server.wire["refuses"] = {"status": status, "headers": headers, "body": body}
    server.why = f"{status}|credential|redirect|answer|MCP|JSON|not be used|no message"
    return f"{status} {short(body)}"


@STRESS_FAULTS.kind("slow-head", on=HTTP)
def _slow_head(server: OddServer, rng: Random) -> str:
    server.wire["slow_s"] = rng.choice([0.3, 1.0])
    return str(server.wire["slow_s"])
