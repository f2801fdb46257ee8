"""What goes through the pipe or the HTTP connection beside the messages, and how it is cut and packed."""

from random import Random
from typing import Final

from .odd_servers import HTTP, STREAMS, Faults, OddServer, short

TRANSPORT_FAULTS: Final = Faults()


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


@TRANSPORT_FAULTS.kind("other-session-ids", on=("http-json", "http-sse"))
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
