"""What servers say of themselves, how they say it, and what they say and do without being asked.

``why`` is set by a fault that may cost the whole server. All others cost nothing.
"""

from random import Random
from typing import Any, Final

from .odd_servers import HANDSHAKE, HTTP, STREAMS, WHOLE, Faults, OddServer, short

WIRE_FAULTS: Final = Faults()


# What it says of itself.


@WIRE_FAULTS.kind("server-info", excludes="info")
def _server_info(server: OddServer, rng: Random) -> str:
    info: Any = rng.choice(
        [..., None, {}, {"name": "odd"}, {"version": "1"}, "odd 1.0", {"name": 5, "version": 1}]
    )
    holder = server.meta if server.transport == "http-modern" else server.hello
    key = "io.modelcontextprotocol/serverInfo" if server.transport == "http-modern" else "serverInfo"
    holder[key] = info
    if info is ...:
        del holder[key]
    return short(info)


@WIRE_FAULTS.kind("old-version", on=HANDSHAKE, excludes="version")
def _old_version(server: OddServer, rng: Random) -> str:
    server.hello["protocolVersion"] = rng.choice(["2024-11-05", "2025-03-26"])
    return str(server.hello["protocolVersion"])


@WIRE_FAULTS.kind("more-versions", on=("http-modern",), excludes="version")
def _more_versions(server: OddServer, rng: Random) -> str:
    server.hello["supportedVersions"] = rng.choice(
        [["2031-01-01", "2026-07-28"], ["2026-07-28", "draft"], ["2025-11-25", "2026-07-28"]]
    )
    return short(server.hello["supportedVersions"])


@WIRE_FAULTS.kind("unknown-version", excludes=WHOLE)
def _unknown_version(server: OddServer, rng: Random) -> str:
    version = rng.choice(["2031-01-01", "1.0", "draft"])
    server.why = f"version|{version}|Method not found"  # to the handshake that is tried then
    if server.transport == "http-modern":
        server.hello["supportedVersions"] = [version]
    else:
        server.hello["protocolVersion"] = version
    return version


@WIRE_FAULTS.kind("capabilities", excludes="capabilities")
def _capabilities(server: OddServer, rng: Random) -> str:
    more: Any = rng.choice(
        [
            {"tools": True},
            {"tools": {"listChanged": "yes"}},
            {"experimental": []},
            {"logging": False},
            {"completions": 1},
            {"prompts": None, "resources": None},
            {"extensions": "none"},
        ]
    )
    server.announce(**more)
    return short(more)


@WIRE_FAULTS.kind("tools-not-announced", excludes=WHOLE)
def _tools_not_announced(server: OddServer, rng: Random) -> str:
    value: Any = rng.choice([{}, {"tools": None}, ..., None])
    server.hello["capabilities"] = value
    if value is ...:
        del server.hello["capabilities"]
    server.why, server.remark = "tool|capabilit", ""
    return short(value)


@WIRE_FAULTS.kind("instructions")
def _instructions(server: OddServer, rng: Random) -> str:
    value: Any = rng.choice([5, ["Be", "brief"], {"text": "Be brief"}, None, False])
    server.hello["instructions"] = value
    return short(value)


# How it says it.


@WIRE_FAULTS.kind("media-type", on=HTTP, excludes="media")
def _media_type(server: OddServer, rng: Random) -> str:
    kind = "text/event-stream" if server.transport == "http-sse" else "application/json"
    server.wire["media_type"] = rng.choice(
        [f"{kind.title()}; Charset=UTF-8", f"{kind};charset=utf-8", kind.upper(), f"{kind} ; x=1"]
    )
    return str(server.wire["media_type"])


@WIRE_FAULTS.kind("wrong-media-type", on=HTTP, excludes=WHOLE)
def _wrong_media_type(server: OddServer, rng: Random) -> str:
    server.wire["media_type"] = rng.choice(["text/plain", "text/html; charset=utf-8", ""])
    server.why = "content.?type|media type|text/|JSON"  # it is read as JSON
    return str(server.wire["media_type"]) or "none"


@WIRE_FAULTS.kind("batch", excludes=WHOLE)
def _batch(server: OddServer, rng: Random) -> str:
    server.wire["batch"] = True
    server.why = "batch|array|JSON|parse|valid|answer|respon|in time"
    return ""


@WIRE_FAULTS.kind("string-id")
def _string_id(server: OddServer, rng: Random) -> str:
    server.wire["string_id"] = True
    return ""


@WIRE_FAULTS.kind("byte-order-mark", excludes=WHOLE)
def _byte_order_mark(server: OddServer, rng: Random) -> str:
    key = "banner" if server.transport == "stdio" else "start"
    server.wire[key] = "\ufeff"
    server.why = "BOM|byte order|JSON|parse|valid|answer|respon|in time"
    return ""


@WIRE_FAULTS.kind("line-ends", on=("stdio", "http-json", "http-modern"))
def _line_ends(server: OddServer, rng: Random) -> str:
    server.wire["end"] = rng.choice(["\r\n", "\n\n", "\r\n\r\n", " \n"])
    return short(server.wire["end"])


@WIRE_FAULTS.kind("extra-fields")
def _extra_fields(server: OddServer, rng: Random) -> str:
    server.wire["extra"] = True
    return ""


@WIRE_FAULTS.kind("result-and-error")
def _result_and_error(server: OddServer, rng: Random) -> str:
    """As in the older JSON-RPC: an answer has both keys, and one of them is null."""
    server.wire["null_error"] = True
    return ""


@WIRE_FAULTS.kind("banner", on=("stdio",), excludes="banner")
def _banner(server: OddServer, rng: Random) -> str:
    server.wire["banner"] = rng.choice(
        [
            "Server 1.2 is ready\n",
            "\n\n",
            "[info] {broken json\n[info] ok\n",
            '{"level": "info"}\n',
            "größe\r\n",
        ]
    )
    return short(server.wire["banner"])


# What it does at the first request that it does not know, and before it is ready.


def _first(manner: str) -> None:
    @WIRE_FAULTS.kind(f"first-{manner}", on=("stdio",), excludes="first")
    def change(server: OddServer, rng: Random) -> str:
        server.wire["first"] = manner
        return ""


for _manner in ("exits", "silent", "null-id", "refused"):
    _first(_manner)


@WIRE_FAULTS.kind("slow-start", on=("stdio",))
def _slow_start(server: OddServer, rng: Random) -> str:
    server.wire["gate"] = True
    return ""


# What it says before an answer.


@WIRE_FAULTS.kind("chatter", on=STREAMS, excludes="before")
def _chatter(server: OddServer, rng: Random) -> str:
    said: list[dict[str, Any]] = [
        {"method": "notifications/message", "params": {"level": "loud", "data": {"x": 1}}},
        {"method": "notifications/unknown"},
        {"method": "notifications/progress", "params": {"progressToken": "nobody", "progress": 1}},
        {"method": "notifications/progress", "params": {"progressToken": None, "progress": "half"}},
        {"method": "notifications/resources/updated", "params": {}},
        {"method": "notifications/cancelled", "params": {"requestId": "nobody"}},
        {"method": "notifications/prompts/list_changed", "params": None},
    ]
    if server.transport == "stdio":  # over HTTP a stream belongs to one request
        said += [{"id": 9_999, "result": {}}, {"id": None, "error": {"code": -32700, "message": "what?"}}]
    chosen = rng.sample(said, 3)
    server.wire["before"] = chosen
    return ", ".join(str(each.get("method", "a stray answer")) for each in chosen)


@WIRE_FAULTS.kind("storm", on=STREAMS, excludes="before")
def _storm(server: OddServer, rng: Random) -> str:
    count = rng.choice([1, 20, 60])
    server.announce(tools={"listChanged": True})
    server.wire["before"] = [{"method": "notifications/tools/list_changed"}] * count
    return str(count)


@WIRE_FAULTS.kind("asks", on=STREAMS)
def _asks(server: OddServer, rng: Random) -> str:
    server.wire["asks"] = rng.choice(["odd/question", "tools/list", "notifications/odd", "ping"])
    return str(server.wire["asks"])


@WIRE_FAULTS.kind("takes-no-answer", on=("http-sse",))
def _takes_no_answer(server: OddServer, rng: Random) -> str:
    server.wire["asks"] = rng.choice(["ping", "elicitation/create"])
    server.wire["unread"] = True
    return str(server.wire["asks"])
