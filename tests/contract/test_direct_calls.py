"""Calls that skip the SDK or FastMCP are answered as they answer them: the same status, headers and bytes."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fastmcp.server.dependencies import fastmcp_request_ctx
from fastmcp.server.middleware import Middleware
from hypothesis import given
from hypothesis import strategies as st
from mcp.server import _streamable_http_modern
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from opentelemetry import trace
from starlette.types import ASGIApp, Message, Scope
from support.properties import examples

from pallas import __version__
from pallas.model import (
    Event,
    Fault,
    FaultType,
    Health,
    HealthStatus,
    Principal,
    RunRequest,
    RunResult,
    StepStarted,
    ToolEvent,
    Usage,
)
from pallas.surfaces import direct_calls
from pallas.surfaces.agent_mcp import agent_app, endpoint
from pallas.surfaces.app_lifespan import Lifespan
from pallas.surfaces.stateless_server import StatelessServer

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol"
TASKS = f"{PREFIX}/tasks"
CLIENT = {
    f"{PREFIX}/protocolVersion": VERSION,
    f"{PREFIX}/clientCapabilities": {},
    f"{PREFIX}/clientInfo": {"name": "test", "version": "1"},
}
NO_TASKS: Any = object()
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


class Kernel:
    """Answers with all that it was asked, or as the text says."""

    questions = None

    def __init__(self) -> None:
        self.cancelled = 0
        self.refuses = False
        self.entered = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, request: RunRequest, hear: Callable[[Event], None] | None = None) -> RunResult:
        if request.text == "fault":
            raise Fault(FaultType.TRANSPORT, "the model is away", retryable=True)
        if request.text == "crash":
            raise RuntimeError("secret")
        if request.text == "wait":
            self.entered.set()
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if request.text == "steps" and hear is not None:
            hear(StepStarted(run_id="r", agent="echo", actor="echo", step=1, kind="llm"))
            hear(ToolEvent(run_id="r", agent="echo", server="s", tool="t", phase="completed", call_id="c"))
        asked = (request.caller, request.trace, request.principal, request.params, request.stream_text)
        texts = (request.text, repr((asked, request.images, request.history)), "😀 é\x7f<>&")
        usage = Usage(None, 3) if request.text == "usage" else Usage()
        missing = {"s": "away"} if request.text == "usage" else {}
        return RunResult("run1", texts, request.conversation, 0.5, usage=usage, missing=missing)

    def end_session(self, *_: Any) -> None: ...


@dataclass
class Request:
    """A request as a test changes it: headers in order, and a body."""

    method: str = "POST"
    path: str = "/mcp"
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: Any = None
    pieces: int = 1

    def raw(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


def call(tool: str = "send_message", **arguments: Any) -> Request:
    """A plain call."""
    headers = [
        ("host", "127.0.0.1"),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", VERSION),
        ("mcp-method", "tools/call"),
        ("mcp-name", tool),
    ]
    params = {"name": tool, "arguments": arguments, "_meta": deepcopy(CLIENT)}
    return Request(
        headers=headers, body={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    )


async def answered(
    app: ASGIApp,
    request: Request,
    hear: Callable[[Message], Awaitable[None]] | None = None,
    *,
    leaves: asyncio.Event | None = None,
) -> list[Any]:
    """Status, headers, and the bytes of the answer; nothing if the caller leaves before."""
    raw = request.raw()
    headers = [(name.encode(), value.encode()) for name, value in request.headers]
    headers.append((b"content-length", str(len(raw)).encode()))
    scope: Scope = {
        "type": "http",
        "method": request.method,
        "path": request.path,
        "raw_path": request.path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
        "http_version": "1.1",
        "scheme": "http",
        "state": {},
        "asgi": {"version": "3.0"},
    }
    size = -(-len(raw) // request.pieces) or 1
    parts = [raw[start : start + size] for start in range(0, len(raw), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": index < len(parts) - 1}
        for index, part in enumerate(parts)
    ]
    said: list[Message] = []

    async def receive() -> Message:
        if messages:
            return messages.pop(0)
        await (leaves or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        said.append(message)
        if hear is not None:
            await hear(message)

    async with asyncio.timeout(30):
        await app(scope, receive, send)
    if not said:
        return []
    start, *rest = said
    return [start["status"], sorted(start["headers"]), b"".join(each.get("body", b"") for each in rest)]


@dataclass
class Both:
    """The same agent twice: with direct calls, and with the SDK alone."""

    run: asyncio.Runner
    direct: ASGIApp
    sdk: ASGIApp
    kernel: Kernel
    server: StatelessServer
    calls: list[str]

    def same(self, request: Request) -> bool:
        """Whether the call was direct. Both answers must be equal."""
        self.calls.clear()
        direct = self.run.run(answered(self.direct, request))
        was_direct = self.calls == ["direct"]
        assert direct == self.run.run(answered(self.sdk, request))
        return was_direct


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with asyncio.Runner() as run:
        kernel, calls = Kernel(), list[str]()
        direct, sdk = _server(kernel), _server(kernel)
        assert direct.direct is not None
        known = direct.direct

        async def counted(name: str, arguments: dict[str, Any]) -> Any:
            context: Any = fastmcp_request_ctx.get()
            calls.append("direct" if context._srctx is None else "sdk")
            return await known.call(name, arguments)

        direct.direct, sdk.direct = replace(known, call=counted), None
        apps = [endpoint(each, ("127.0.0.1",)) for each in (direct, sdk)]
        lives = [Lifespan(app, "test") for app in apps]
        for life in lives:
            run.run(life.start())
        yield Both(run, apps[0], apps[1], kernel, direct, calls)
        for life in lives:
            run.run(life.stop())


def _server(kernel: Any) -> StatelessServer:
    async def health() -> Health:
        return Health(HealthStatus.DEGRADED, "the disk is full", checked_at=1_700_000_000.0)

    async def authorize(tool: str, _: Principal) -> None:
        if kernel.refuses:
            raise Fault(FaultType.AUTH, f"{tool} is not for you")

    server = agent_app(
        kernel, "echo", description="says it", health=health, authorize=authorize, tasks=lambda: NO_TASKS
    )
    assert isinstance(server, StatelessServer)
    return server


def changed(change: Callable[[Any], Any], request: Request | None = None) -> Request:
    """A call whose body was changed."""
    made = request or call(message="hi")
    change(made.body)
    return made


def meta(**more: Any) -> Request:
    """A call with more metadata."""
    return changed(lambda body: body["params"]["_meta"].update(more))


def header(name: str, value: str | None, *, again: bool = False) -> Request:
    """A call with another header, one more, or one less."""
    made = call(message="hi")
    if not again:
        made.headers = [each for each in made.headers if each[0] != name]
    if value is not None:
        made.headers.append((name, value))
    return made


def raw(body: bytes) -> Request:
    made = call(message="hi")
    made.body = body
    return made


def text(old: str = "", new: str = "") -> str:
    """The body of a call as text, with a change."""
    return json.dumps(call(message="hi").body).replace(old, new)


def progress(token: Any, message: str) -> Request:
    """A call that asks for progress."""
    return changed(lambda body: body["params"]["_meta"].update(progressToken=token), call(message=message))


PICTURE = {"data": "aGk=", "mime_type": "image/png"}
DIRECT = {
    "send_message": call(message="hi"),
    "its alias": call("echo", message="hi"),
    "get_health": call("get_health"),
    "get_health with arguments": call("get_health", a=1),
    "a conversation": call(message="hi", conversation_id="c" * 20),
    "history": call(message="hi", history=[{"role": "user", "content": "é"}, {"role": "x"}]),
    "images": call(message="hi", images=[PICTURE]),
    "wrong images": call(message="hi", images=[{}]),
    "no message": call(),
    "unknown argument": call(message="hi", unknown="\u202e"),
    "number for a message": call(message=1),
    "a fault": call(message="fault"),
    "a failure": call(message="crash"),
    "metadata with nothing in it": call(message="usage"),
    "no arguments": changed(lambda body: body["params"].pop("arguments"), call("get_health")),
    "text id": changed(lambda body: body.update(id="x\u00e9")),
    "large id": changed(lambda body: body.update(id=2**70)),
    "trace": meta(traceparent=TRACE, tracestate="a=b", baggage="c=d"),
    "wrong trace": meta(traceparent="00-1"),
    "parameters": meta(**{"local.pallas/params": {"temperature": 0.2}}),
    "wrong parameters": meta(**{"local.pallas/params": 3}),
    "capabilities": meta(**{f"{PREFIX}/clientCapabilities": {"elicitation": {}, "x": 1}}),
    "NaN": raw(json.dumps(call(message="hi").body).replace('"hi"', "NaN").encode()),
    "same key twice": raw(
        json.dumps(call(message="hi").body).replace('"hi"', '"a", "message": "b"').encode()
    ),
    "UTF-16": raw(json.dumps(call(message="hi").body).encode("utf-16")),
    "progress": progress("t", "steps"),
    "progress of nothing": progress(7, "hi"),
    "progress of a fault": progress(0, "fault"),
    "other order of types": header("accept", "text/event-stream;q=0.9, Application/JSON"),
    "charset": header("content-type", "application/json; charset=utf-8"),
    "more headers": header("authorization", "Bearer abc"),
}


@pytest.mark.parametrize("request_", DIRECT.values(), ids=DIRECT)
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_plain_call_is_answered_directly_with_the_same_bytes(
    both: Both, request_: Request, pieces: int
) -> None:
    assert both.same(replace(request_, pieces=pieces))


OTHERS = {
    "unknown tool": call("nothing"),
    "empty body": raw(b""),
    "no JSON": raw(b"{"),
    "deep JSON": raw(b"[" * 100_000),
    "number with too many digits": raw(b'{"id": ' + b"1" * 5_000 + b"}"),
    "batch": raw(json.dumps([call(message="hi").body]).encode()),
    "notification": changed(lambda body: body.pop("id")),
    "answer": raw(b'{"jsonrpc": "2.0", "id": 1, "result": {}}'),
    "id of null": changed(lambda body: body.update(id=None)),
    "id that is true": changed(lambda body: body.update(id=True)),
    "id with a fraction": changed(lambda body: body.update(id=1.5)),
    "no version of JSON-RPC": changed(lambda body: body.pop("jsonrpc")),
    "other version of JSON-RPC": changed(lambda body: body.update(jsonrpc="1.0")),
    "key beside them": changed(lambda body: body.update(more=1)),
    "no params": changed(lambda body: body.pop("params")),
    "params in a list": changed(lambda body: body.update(params=[1])),
    "no metadata": changed(lambda body: body["params"].pop("_meta")),
    "metadata in a list": changed(lambda body: body["params"].update(_meta=[])),
    "arguments in a list": changed(lambda body: body["params"].update(arguments=[1])),
    "arguments of null": changed(lambda body: body["params"].update(arguments=None)),
    "other name in the body": changed(lambda body: body["params"].update(name="get_health")),
    "number for a name": changed(lambda body: body["params"].update(name=1)),
    "other method in the body": changed(lambda body: body.update(method="tools/list")),
    "request state": changed(lambda body: body["params"].update(requestState="x")),
    "input": changed(lambda body: body["params"].update(inputResponses={})),
    "task": meta(**{f"{PREFIX}/clientCapabilities": {"extensions": {TASKS: {}}}}),
    "other extension": meta(**{f"{PREFIX}/clientCapabilities": {"extensions": {"com.example/x": {}}}}),
    "log level": meta(**{f"{PREFIX}/logLevel": "debug"}),
    "version of a tool": meta(fastmcp={"version": "1"}),
    "unknown metadata": meta(anything=[None]),
    "wrong trace": meta(traceparent=3),
    "wrong token": meta(progressToken={}),
    "token of null": meta(progressToken=None),
    "capabilities of null": meta(**{f"{PREFIX}/clientCapabilities": None}),
    "wrong capabilities": meta(**{f"{PREFIX}/clientCapabilities": {"roots": 3}}),
    "wrong client": meta(**{f"{PREFIX}/clientInfo": {"name": 3}}),
    "large client": meta(**{f"{PREFIX}/clientInfo": {"name": "x" * 9_000, "version": "1"}}),
    "other version in the body": meta(**{f"{PREFIX}/protocolVersion": "2030-01-01"}),
    "version that is a number": meta(**{f"{PREFIX}/protocolVersion": 3}),
    "no client": changed(lambda body: body["params"]["_meta"].pop(f"{PREFIX}/clientInfo")),
    "no version in the body": changed(lambda body: body["params"]["_meta"].pop(f"{PREFIX}/protocolVersion")),
    "no capabilities": changed(lambda body: body["params"]["_meta"].pop(f"{PREFIX}/clientCapabilities")),
    "other version in the header": header("mcp-protocol-version", "2030-01-01"),
    "two versions": header("mcp-protocol-version", VERSION, again=True),
    "other method in the header": header("mcp-method", "tools/list"),
    "no method in the header": header("mcp-method", None),
    "two methods": header("mcp-method", "tools/call", again=True),
    "other name in the header": header("mcp-name", "get_health"),
    "no name in the header": header("mcp-name", None),
    "two names": header("mcp-name", "send_message", again=True),
    "name in base64": header("mcp-name", "=?base64?c2VuZF9tZXNzYWdl?="),
    "header of a parameter": header("mcp-param-message", "hi"),
    "a session": header("mcp-session-id", "x"),
    "no type": header("content-type", None),
    "other type": header("content-type", "text/plain"),
    "nothing accepted": header("accept", None),
    "only JSON accepted": header("accept", "application/json"),
    "everything accepted": header("accept", "*/*"),
    "two lists of types": header("accept", "text/plain", again=True),
    "other path": replace(call(message="hi"), path="/nothing"),
    **{method: replace(call(message="hi"), method=method) for method in ("GET", "PUT", "DELETE", "OPTIONS")},
    "list of tools": changed(
        lambda body: (body.update(method="tools/list"), body["params"].pop("name")),
        header("mcp-method", "tools/list"),
    ),
    "discovery": changed(
        lambda body: (body.update(method="server/discover"), body["params"].pop("name")),
        header("mcp-method", "server/discover"),
    ),
    "ping": changed(lambda body: body.update(method="ping"), header("mcp-method", "ping")),
}


@pytest.mark.parametrize("request_", OTHERS.values(), ids=OTHERS)
def test_every_other_request_is_left_to_the_sdk(both: Both, request_: Request) -> None:
    assert not both.same(request_)


SESSIONS = {
    **{name: request for name, request in DIRECT.items() if name != "large id"},
    "unknown tool": call("nothing"),
    "task": OTHERS["task"],
    "version of a tool": OTHERS["version of a tool"],
    "list of tools": changed(lambda body: (body.update(method="tools/list"), body["params"].pop("name"))),
    "ping": changed(lambda body: body.update(method="ping")),
}


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
def test_calls_in_a_session_are_answered_with_the_same_bytes(both: Both, version: str) -> None:
    opened = [both.run.run(session(app, version)) for app in (both.direct, both.sdk)]
    for name, request in SESSIONS.items():
        both.calls.clear()
        answers = []
        for app, identity in zip((both.direct, both.sdk), opened, strict=True):
            inside = deepcopy(request)
            dropped = ("mcp-protocol-version", "mcp-session-id")
            inside.headers = [each for each in inside.headers if each[0] not in dropped]
            inside.headers += [("mcp-protocol-version", version), ("mcp-session-id", identity)]
            status, headers, body = both.run.run(answered(app, inside))
            answers.append((status, [each for each in headers if each[0] != b"mcp-session-id"], body))
        assert answers[0] == answers[1], name
        skips_fastmcp = name in DIRECT and name != "UTF-16"
        assert both.calls == ["sdk"] * skips_fastmcp, name


async def session(app: ASGIApp, version: str) -> str:
    """The id of a session with a handshake."""
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    plain = [each for each in call().headers if not each[0].startswith("mcp-")]
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
    _, headers, _ = await answered(app, Request(headers=plain, body=body))
    identity: str = dict(headers)[b"mcp-session-id"].decode()
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    inside = [*plain, ("mcp-session-id", identity), ("mcp-protocol-version", version)]
    assert (await answered(app, Request(headers=inside, body=note)))[0] == 202
    return identity


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["2.0", "tools/call"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    [
        ("jsonrpc",), ("id",), ("method",), ("params",), ("more",),
        *(("params", key) for key in ("name", "arguments", "_meta", "more")),
        *(("params", "arguments", key) for key in ("message", "images", "history", "stream_text", "x")),
        *(("params", "_meta", key) for key in CLIENT),
        *(("params", "_meta", key) for key in ("progressToken", "traceparent", "local.pallas/params", "x")),
        ("params", "_meta", f"{PREFIX}/clientInfo", "name"),
        ("params", "_meta", f"{PREFIX}/clientCapabilities", "sampling"),
    ]
)  # fmt: skip
_NAMES = st.sampled_from(["accept", "content-type", "mcp-method", "mcp-name", "mcp-protocol-version", "x"])
_TEXTS = st.sampled_from(["", "*/*", "application/json", "tools/call", "send_message", VERSION])


@pytest.mark.slow
@given(
    tool=st.sampled_from(["send_message", "get_health", "echo", "nothing"]),
    message=st.sampled_from(["hi", "steps", "usage", "fault", "crash"]) | st.text(),
    changes=st.lists(st.tuples(_KEYS, _VALUES | st.just(...)), max_size=3),
    headers=st.lists(st.tuples(_NAMES, _TEXTS, st.booleans()), max_size=1),
)
@examples(400)
def test_no_request_is_answered_otherwise_than_by_the_sdk(
    both: Both, tool: str, message: str, changes: list[Any], headers: list[Any]
) -> None:
    request = call(tool, message=message)
    for keys, value in changes:
        _set(request.body, keys, value)
    for name, value, again in headers:
        if not again:
            request.headers = [each for each in request.headers if each[0] != name]
        request.headers.append((name, value))
    both.same(request)


def _set(inner: Any, keys: tuple[str, ...], value: Any) -> None:
    for key in keys[:-1]:
        inner = inner.get(key) if isinstance(inner, dict) else None
    if not isinstance(inner, dict):
        return
    if value is ...:
        inner.pop(keys[-1], None)
    else:
        inner[keys[-1]] = value


def test_a_refusal_is_the_same(both: Both) -> None:
    both.kernel.refuses = True
    try:
        assert both.same(call(message="hi"))
        assert both.same(call("echo", message="hi"))
        assert both.same(call("get_health"))
    finally:
        both.kernel.refuses = False


def test_a_server_with_other_middleware_is_left_to_the_sdk(both: Both) -> None:
    both.server.add_middleware(Middleware())
    try:
        assert not both.same(call(message="hi"))
    finally:
        both.server.middleware.pop()
    assert both.same(call(message="hi"))


def test_calls_are_left_to_the_sdk_while_spans_are_recorded(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_calls, "get_tracer_provider", trace.NoOpTracerProvider)
    assert not both.same(call(message="hi"))


def test_a_new_version_of_the_agent_is_named(both: Both) -> None:
    both.server.release("9.9")
    try:
        assert b'"version":"9.9"' in both.run.run(answered(both.direct, call("get_health")))[2]
        assert both.calls
    finally:
        both.server.release(__version__)


@pytest.mark.parametrize("token", [None, "t"])
def test_a_long_silence_is_broken_as_by_the_sdk(
    both: Both, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    monkeypatch.setattr(direct_calls, "PING_INTERVAL", 0.05)
    monkeypatch.setattr(_streamable_http_modern, "_SSE_PING_INTERVAL", 0.05)
    request = call(message="wait") if token is None else meta(progressToken=token)
    request.body["params"]["arguments"]["message"] = "wait"

    async def pinged(app: ASGIApp) -> list[Any]:
        both.kernel.go.clear()
        heard: list[Message] = []

        async def until_three_pings(message: Message) -> None:
            heard.append(message)
            if sum(each.get("body") == b": ping\r\n\r\n" for each in heard) == 3:
                both.kernel.go.set()

        found = await answered(app, request, until_three_pings)
        return [*found[:2], found[2].replace(b": ping\r\n\r\n", b"")]

    direct, sdk = (both.run.run(pinged(app)) for app in (both.direct, both.sdk))
    assert direct == sdk
    assert direct[1] == sorted(direct_calls._EVENTS)


def test_a_caller_that_leaves_ends_its_call_once(both: Both) -> None:
    both.kernel.go.clear()
    for app in (both.direct, both.sdk):
        both.kernel.cancelled = 0
        both.kernel.entered.clear()
        assert both.run.run(answered(app, call(message="wait"), leaves=both.kernel.entered)) == []
        assert both.kernel.cancelled == 1
