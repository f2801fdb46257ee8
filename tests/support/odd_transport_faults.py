"""What goes through the pipe or the HTTP connection beside the messages, and how it is cut and packed."""

from random import Random
from typing import Any, Final

from .odd_servers import HTTP, STREAMS, WHOLE, Faults, OddServer, Transport, short

TRANSPORT_FAULTS: Final = Faults()
_SESSIONS: Final[tuple[Transport, ...]] = ("http-json", "http-sse")


@TRANSPORT_FAULTS.kind("cookies", on=HTTP)
def _cookies(server: OddServer, rng: Random) -> str:
    server.wire["headers"] = {
        "set-cookie": rng.choice(["sid=1; Path=/", "a=b; Domain=elsewhere.test", "=; ;", "x" * 3_000]),
        **server.wire.get("headers", {}),
    }
    return short(server.wire["headers"]["set-cookie"])


@TRANSPORT_FAULTS.kind("hangs-up", on=HTTP)
def _hangs_up(server: OddServer, rng: Random) -> str:
    server.wire["headers"] = {"connection": "close", **server.wire.get("headers", {})}
    return ""


@TRANSPORT_FAULTS.kind("redirects", on=HTTP, excludes="status")
def _redirects(server: OddServer, rng: Random) -> str:
    server.wire["moved"] = rng.choice([307, 308])
    return str(server.wire["moved"])


@TRANSPORT_FAULTS.kind("packed", on=HTTP)
def _packed(server: OddServer, rng: Random) -> str:
    server.wire["packed"] = rng.choice(["gzip", "deflate"])
    return str(server.wire["packed"])


@TRANSPORT_FAULTS.kind("busy-start", on=HTTP, excludes="status")
def _busy_start(server: OddServer, rng: Random) -> str:
    server.wire["busy"] = {"status": rng.choice([429, 502, 503]), "count": rng.randint(1, 3)}
    return f"{server.wire['busy']['status']}, {server.wire['busy']['count']} times"


@TRANSPORT_FAULTS.kind("body-of-202", on=HTTP)
def _body_of_202(server: OddServer, rng: Random) -> str:
    server.wire["accepted"] = rng.choice(["{}", "ok", '{"jsonrpc": "2.0", "result": {}}', "null"])
    return str(server.wire["accepted"])


@TRANSPORT_FAULTS.kind("other-session-ids", on=_SESSIONS)
def _other_session_ids(server: OddServer, rng: Random) -> str:
    server.wire["renames"] = rng.choice(["another", ""])
    return short(server.wire["renames"])


@TRANSPORT_FAULTS.kind("event-noise", on=("http-sse",), excludes="events")
def _event_noise(server: OddServer, rng: Random) -> str:
    server.wire["noise"] = rng.choice(
        [
            ": keep-alive\n\n",
            "retry: 3000\n\n",
            "id: 7\nevent: ping\ndata: {}\n\n",
            "event: message\ndata:\n\n",
            ":\n\n: ok\n\nevent: heartbeat\ndata: now\n\n",
        ]
    )
    return short(server.wire["noise"])


@TRANSPORT_FAULTS.kind("event-lines", on=("http-sse",), excludes="events")
def _event_lines(server: OddServer, rng: Random) -> str:
    server.wire["event_form"] = rng.choice(
        ["data: {}\r\n\r\n", "data:{}\n\n", "id: 1\ndata: {}\nevent: message\n\n", "data: {}\r\r"]
    )
    return short(server.wire["event_form"])


@TRANSPORT_FAULTS.kind("cut-up", on=("http-sse",))
def _cut_up(server: OddServer, rng: Random) -> str:
    server.wire["piece"] = rng.choice([1, 7])
    server.add_result(rng, {"content": [{"type": "text", "text": "größe 搜索 😀"}]}, "größe 搜索 😀")
    return str(server.wire["piece"])


@TRANSPORT_FAULTS.kind("same-ids", on=STREAMS, excludes="before")
def _same_ids(server: OddServer, rng: Random) -> str:
    server.wire["before"] = [{"id": number, "method": "ping"} for number in range(4)]
    return ""


@TRANSPORT_FAULTS.kind("late-words", on=STREAMS)
def _late_words(server: OddServer, rng: Random) -> str:
    server.wire["after"] = [
        {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 2}},
        {"method": "notifications/message", "params": {"level": "info", "data": {"a": [{"b": None}]}}},
    ]
    return ""


@TRANSPORT_FAULTS.kind("stdout-noise", on=("stdio",))
def _stdout_noise(server: OddServer, rng: Random) -> str:
    server.wire["noise"] = rng.choice(["[debug] called\n", "\ufeff\n", "\x1b[32mok\x1b[0m\n", "{}\n"])
    return short(server.wire["noise"])


@TRANSPORT_FAULTS.kind("stderr-flood", on=("stdio",))
def _stderr_flood(server: OddServer, rng: Random) -> str:
    server.wire["flood"] = rng.choice([100_000, 1_000_000])
    return str(server.wire["flood"])


# What it answers to requests that no tool is called by.


@TRANSPORT_FAULTS.kind("odd-listening", on=_SESSIONS)
def _odd_listening(server: OddServer, rng: Random) -> str:
    if rng.random() < 0.2:
        server.wire["get"] = {"stays": True}
        return "a silent stream"
    events = {"content-type": "text/event-stream"}
    status, headers, body = rng.choice(
        [
            (200, {"content-type": "text/plain"}, "This is an MCP endpoint. Use POST."),
            (200, events, ""),
            (200, events, "retry: 0\n\n"),
            (200, events, "id: 1\nretry: 0\ndata:\n\n"),
            (200, events, "data: {broken\n\n"),
            (204, {}, ""),
            (302, {"location": "/login"}, ""),
            (400, {}, "Session registration failed: session already exists"),
            (401, {}, ""),
            (404, {}, ""),
            (409, {"content-type": "application/json"}, '{"error": "Conflict"}'),
            (500, {}, "<html>no</html>"),
        ]
    )
    server.wire["get"] = {"status": status, "headers": headers, "body": body}
    return f"{status} {short(body)}"


@TRANSPORT_FAULTS.kind("answers-notifications", on=_SESSIONS)
def _answers_notifications(server: OddServer, rng: Random) -> str:
    json = {"content-type": "application/json"}
    refusal = '{"jsonrpc": "2.0", "id": "1", "error": {"code": -32601, "message": "what?"}}'
    status, headers, body = rng.choice(
        [
            (204, {}, ""),
            (200, json, ""),
            (200, json, "{}"),
            (200, json, refusal),
            (200, {"content-type": "text/event-stream"}, ""),
            (400, json, refusal),
            (404, {}, "not found"),
            (405, {}, ""),
            (500, {}, "<html>no</html>"),
        ]
    )
    server.wire["notified"] = {"status": status, "headers": headers, "body": body}
    return f"{status} {short(body)}"


@TRANSPORT_FAULTS.kind("odd-goodbye", on=_SESSIONS)
def _odd_goodbye(server: OddServer, rng: Random) -> str:
    status = rng.choice([400, 405, 500, 302, 0])
    server.wire["goodbye"] = status
    return str(status) if status else "no answer"


@TRANSPORT_FAULTS.kind("unprocessable-lists", on=HTTP, excludes="side")
def _unprocessable_lists(server: OddServer, rng: Random) -> str:
    server.wire["other_status"] = rng.choice([400, 404, 422, 500, 501])
    if server.transport != "http-modern" and rng.random() < 0.5:
        server.announce(prompts={})
        server.remark = "prompt"
    return str(server.wire["other_status"])


# How it answers a call.


@TRANSPORT_FAULTS.kind("call-status", on=HTTP)
def _call_status(server: OddServer, rng: Random) -> str:
    status, kind, body = rng.choice(
        [
            (429, "text/plain", "quota of 4711 is used up"),
            (500, "application/json", '{"detail": "quota of 4711 is used up"}'),
            (503, "text/html", "<html>quota of 4711 is used up</html>"),
            (413, "text/plain", "quota of 4711 is used up"),
            (422, "application/json", '{"detail": [{"loc": ["a"], "msg": "quota of 4711 is used up"}]}'),
            (403, "text/plain", "quota of 4711 is used up"),
        ]
    )
    tool = server.add(rng)
    tool.reads = (str(status), "quota of 4711 is used up")
    answers = server.wire.setdefault("call_status", {})
    answers[tool.name] = {"status": status, "headers": {"content-type": kind}, "body": body}
    return f"{status} {kind}"


@TRANSPORT_FAULTS.kind("odd-errors")
def _odd_errors(server: OddServer, rng: Random) -> str:
    error: Any = rng.choice(
        [
            {"code": "E_QUOTA", "message": "it broke: 4711"},
            {"message": "it broke: 4711"},
            {"code": -32603, "message": "it broke: 4711", "data": [None, {"at": "line 5"}]},
            {"code": -32603, "message": None, "data": "it broke: 4711"},
            {"code": -32000.0, "message": "it broke: 4711"},
            {"code": 10**30, "message": "it broke: 4711"},
            {"code": -32603, "message": {"text": "it broke: 4711"}},
            "it broke: 4711",
        ]
    )
    tool = server.add(rng)
    tool.result, tool.reads = {"odd_error": error}, ("it broke: 4711",)
    return short(error)


@TRANSPORT_FAULTS.kind("polled", on=("http-sse",), excludes="events")
def _polled(server: OddServer, rng: Random) -> str:
    """The server closes the stream of a call; its answer is fetched with the id of the last event."""
    empty = rng.choice([0, 1, 3])
    server.wire["polled"] = {"tool": server.add(rng).name, "empty": empty}
    return f"{empty} empty streams before it"


@TRANSPORT_FAULTS.kind("cut-off", on=("http-sse",), excludes="events")
def _cut_off(server: OddServer, rng: Random) -> str:
    """The server closes the stream of a call, and each that follows it, without another event."""
    tool = server.add(rng)
    tool.reads = ("stream|connection|closed|ended|broke|answer",)
    server.wire["polled"] = {"tool": tool.name, "empty": 10**6, "same_id": True}
    return ""


@TRANSPORT_FAULTS.kind("ends-after", on=("stdio",), excludes=WHOLE)
def _ends_after(server: OddServer, rng: Random) -> str:
    """A program that ends, in good order, once it has answered a call."""
    status = rng.choice([0, 1])
    server.wire["ends_after"] = {"method": "tools/call", "status": status}
    server.gone = f"ended with exit status {status} right after it answered tools/call"
    server.tools = server.tools[:1]  # calls beside the first one are not answered
    return f"tools/call, status {status}"


@TRANSPORT_FAULTS.kind("answers-once", on=("stdio",), excludes=WHOLE)
def _answers_once(server: OddServer, rng: Random) -> str:
    """A program that ends once it has answered anything at all, or its lists."""
    method = rng.choice(["initialize", "tools/list"])
    server.wire["ends_after"] = {"method": method, "status": 0}
    server.why = "status 0 right after it answered|Connection closed"  # if a probe finds it
    return method
