"""What HTTP servers and gateways make of a connection, and servers over server-sent events."""

from random import Random
from typing import Any, Final

from .odd_servers import HTTP, WHOLE, Faults, OddServer, Transport, short

HTTP_FAULTS: Final = Faults()
_SESSIONS: Final[tuple[Transport, ...]] = ("http-json", "http-sse")
_SSE: Final[tuple[Transport, ...]] = ("sse",)
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_REASON: Final = "quota of 4711 is used up"


def _error(number: Any) -> str:
    head = "" if number is ... else f'"id": {number}, '
    return f'{{"jsonrpc": "2.0", {head}"error": {{"code": -32603, "message": "{_REASON}"}}}}'


# What is in the body of an answer.


@HTTP_FAULTS.kind("swapped-type", on=HTTP, excludes="media")
def _swapped_type(server: OddServer, rng: Random) -> str:
    """JSON that is called an event stream, and the other way round."""
    server.wire["media_type"] = _JSON if server.transport == "http-sse" else _EVENTS
    return str(server.wire["media_type"])


@HTTP_FAULTS.kind("call-body", on=HTTP)
def _call_body(server: OddServer, rng: Random) -> str:
    """A call is answered with status 200, by something that is no MCP server."""
    kind, body, read = rng.choice(
        [
            (_EVENTS, "Jwt issuer 4711 is not configured", "Jwt issuer 4711"),
            ("text/html", "<html><h1>Sign in 4711</h1></html>", "4711|JSON"),
            (_JSON, '{"error": "quota of 4711 is used up"}', "4711"),
            (_JSON, '{"message": "Endpoint request timed out 4711"}', "4711"),
            (_JSON, "", "answer|JSON|empty"),
            (_EVENTS, "event: error\ndata: 4711 broke\n\n", "4711|without|ended"),
            (_EVENTS, "data: [DONE]\n\n", "answer|ended|without|JSON"),
        ]
    )
    tool = server.add(rng)
    tool.reads = (read,)
    answers = server.wire.setdefault("call_status", {})
    answers[tool.name] = {"status": 200, "headers": {"content-type": kind}, "body": body}
    return f"{kind} {body[:20]}"


@HTTP_FAULTS.kind("other-id", on=HTTP)
def _other_id(server: OddServer, rng: Random) -> str:
    """The error of a call has the id of no request."""
    status = rng.choice([200, 400, 400, 500])
    tool = server.add(rng)
    tool.reads = (_REASON,)
    if status == 500:  # a real call that failed, until a later one succeeds
        server.gone = "last call: HTTP 500"
    number = rng.choice(['"server-error"', "null", '""', "0", ...])
    answer = {"status": status, "headers": {"content-type": _JSON}, "body": _error(number)}
    server.wire.setdefault("call_status", {})[tool.name] = answer
    return f"{status}, {'absent' if number is ... else number}"


@HTTP_FAULTS.kind("other-id-event", on=HTTP)
def _other_id_event(server: OddServer, rng: Random) -> str:
    tool = server.add(rng)
    tool.reads = (_REASON,)
    number = rng.choice(['"server-error"', "null", ...])
    answer = {"status": 200, "headers": {"content-type": _EVENTS}, "body": f"data: {_error(number)}\n\n"}
    server.wire.setdefault("call_status", {})[tool.name] = answer
    return "absent" if number is ... else str(number)


@HTTP_FAULTS.kind("cut-body", on=HTTP)
def _cut_body(server: OddServer, rng: Random) -> str:
    """The connection breaks in the middle of the answer to a call."""
    tool = server.add(rng)
    tool.reads = ("broke|connection|closed|ended|JSON|answer",)
    server.wire["cut_body"] = tool.name
    return ""


@HTTP_FAULTS.kind("slow-body", on=("http-json", "http-modern"))
def _slow_body(server: OddServer, rng: Random) -> str:
    server.wire["drip"] = rng.choice([1, 50, 1_000])
    return str(server.wire["drip"])


@HTTP_FAULTS.kind("encoding-name", on=HTTP)
def _encoding_name(server: OddServer, rng: Random) -> str:
    name = rng.choice(["identity", "utf-8", "none", "", "UTF8", "aws-chunked"])
    server.wire["headers"] = {"content-encoding": name, **server.wire.get("headers", {})}
    return short(name)


@HTTP_FAULTS.kind("lingers", on=("http-sse",), excludes="events")
def _lingers(server: OddServer, rng: Random) -> str:
    """The stream of a request goes on after its answer."""
    server.wire["lingers"] = True
    return ""


@HTTP_FAULTS.kind("event-names", on=("http-sse",), excludes="events")
def _event_names(server: OddServer, rng: Random) -> str:
    name = rng.choice(["response", "result", "data", "jsonrpc", "Message"])
    server.wire["event_form"] = f"event: {name}\ndata: {{}}\n\n"
    return str(name)


# Sessions.


@HTTP_FAULTS.kind("no-session", on=_SESSIONS)
def _no_session(server: OddServer, rng: Random) -> str:
    """It has no sessions at all."""
    server.wire["sessionless"] = True
    return ""


@HTTP_FAULTS.kind("short-sessions", on=_SESSIONS)
def _short_sessions(server: OddServer, rng: Random) -> str:
    """It forgets a session after some calls, and says so in its own way."""
    gone = '"message": "Session not found or expired"'
    status, body = rng.choice(
        [
            (404, ""),
            (400, "Bad Request: No valid session ID provided"),
            (404, f'{{"jsonrpc": "2.0", "id": "server-error", "error": {{"code": -32600, {gone}}}}}'),
            (410, "Gone"),
            (401, "invalid session"),
            (403, "Session expired"),
            (409, "unknown session"),
            (500, "Session not found"),
            (200, f'{{"jsonrpc": "2.0", "id": null, "error": {{"code": -32001, {gone}}}}}'),
            (200, f'{{"jsonrpc": "2.0", "id": null, "error": {{"code": -32000, {gone}}}}}'),
            (422, f'{{"detail": {{{gone}}}}}'),
        ]
    )
    server.wire["session_calls"] = {"count": 3, "status": status, "body": body}
    server.tools = server.tools[:2]  # calls at once are made again once, in a session that must take them
    return f"{status} {body[:30]}"


@HTTP_FAULTS.kind("listening-says", on=_SESSIONS)
def _listening_says(server: OddServer, rng: Random) -> str:
    """The stream that is open beside requests asks things and says things."""
    said: Any = rng.choice(
        [
            {"id": 0, "method": "ping"},
            {"id": "a", "method": "roots/list"},
            {"id": None, "method": "ping"},
            {"method": "notifications/tools/list_changed"},
            {"id": 2, "result": {"tools": []}},
            {"id": 3, "error": {"code": -32603, "message": "it broke"}},
            {"id": 1.5, "method": "ping"},
            ["ping"],
        ]
    )
    if isinstance(said, dict):
        said = {"jsonrpc": "2.0", **said}
    server.wire["get"] = {"stays": True, "said": said}
    return short(said)


# Servers over server-sent events: the first event names the address for messages.


@HTTP_FAULTS.kind("endpoint-form", on=_SSE, excludes="endpoint")
def _endpoint_form(server: OddServer, rng: Random) -> str:
    form = rng.choice(["path", "relative", "absolute", "query", "padded", "json", "quoted"])
    server.wire["endpoint"] = form
    if form in ("json", "quoted"):
        server.why = "endpoint|address|404|405|answer"
    return str(form)


@HTTP_FAULTS.kind("endpoint-elsewhere", on=_SSE, excludes=WHOLE)
def _endpoint_elsewhere(server: OddServer, rng: Random) -> str:
    server.wire["endpoint"] = "elsewhere"
    server.why = "origin|address|endpoint"
    return ""


@HTTP_FAULTS.kind("no-endpoint", on=_SSE, excludes=WHOLE)
def _no_endpoint(server: OddServer, rng: Random) -> str:
    server.wire["endpoint"] = rng.choice(["none", "ends", "late", "html"])
    server.why = "endpoint|address|stream|event|html|in time|respon"
    return str(server.wire["endpoint"])


@HTTP_FAULTS.kind("endpoint-late", on=_SSE, excludes="endpoint")
def _endpoint_late(server: OddServer, rng: Random) -> str:
    server.wire["noise_first"] = rng.choice(
        [": hello\n\n", "event: ping\ndata: now\n\n", "data: hello\n\n", "data:\n\n"]
    )
    return short(server.wire["noise_first"])


@HTTP_FAULTS.kind("post-answer", on=_SSE)
def _post_answer(server: OddServer, rng: Random) -> str:
    status, body = rng.choice(
        [(200, "Accepted"), (200, ""), (204, ""), (201, "{}"), (202, "null"), (200, "same")]
    )
    server.wire["post"] = {"status": status, "body": body}
    return f"{status} {body}"


@HTTP_FAULTS.kind("post-has-answer", on=_SSE)
def _post_has_answer(server: OddServer, rng: Random) -> str:
    """The answer is in the response to the message, and in no event."""
    server.wire["post"] = {"status": 200, "body": "instead"}
    return ""


@HTTP_FAULTS.kind("post-refuses", on=_SSE)
def _post_refuses(server: OddServer, rng: Random) -> str:
    status = rng.choice([400, 403, 413, 429, 500, 503])
    tool = server.add(rng)
    tool.reads = (str(status), _REASON)
    server.wire["call_status"] = {tool.name: {"status": status, "headers": {}, "body": _REASON}}
    return str(status)


@HTTP_FAULTS.kind("stream-ends", on=_SSE)
def _stream_ends(server: OddServer, rng: Random) -> str:
    """The stream is closed after some answers, as proxies do."""
    server.wire["stream_answers"] = rng.choice([5, 8])
    server.tools = server.tools[:1]  # calls beside the first one may not be answered
    return str(server.wire["stream_answers"])
