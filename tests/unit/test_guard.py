"""Host and Origin protection. # PR-8"""

import logging
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from pallas.config.models import Project
from pallas.surfaces.host_guard import HostOriginGuard, allowed_hosts_of

PASSED = 200


async def _inner(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": PASSED, "headers": []})
    await send({"type": "http.response.body", "body": b"through"})


async def _ask(headers: list[tuple[str, str]], *allowed: str, method: str = "GET") -> tuple[int, bytes]:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the guard never reads a body")

    async def send(message: Message) -> None:
        sent.append(message)

    scope: Scope = {
        "type": "http",
        "method": method,
        "path": "/",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    await HostOriginGuard(_inner, allowed)(scope, receive, send)
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8201",
        "LocalHost.:8201",
        "127.0.0.1:24200",
        "[::1]:8201",
        "[0:0:0:0:0:0:0:1]",
        "puck.incus",
        "PUCK.incus.:23030",
        "[2001:DB8::7]:80",
    ],
)
async def test_allowed_hosts_pass(host: str) -> None:
    status, _ = await _ask([("host", host)], "Puck.Incus:9999", "2001:db8::7")
    assert status == PASSED


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.2",
        "[::2]",
        "",
        " ",
        "localhost ",
        "localhost:",
        "localhost:80:80",
        "localhost:port",
        "localhost/x",
        "user@localhost",
        "localhost#x",
        "localhost?x",
        "localhost\\x",
        "localhost,evil.example",
        "localhost..",
        "::1",
        "[::1",
        "[localhost]",
        "[::1]x",
        "loc\u00e4lhost",
        "a" * 300,
    ],
)
async def test_other_and_malformed_hosts_are_misdirected(host: str) -> None:
    status, body = await _ask([("host", host)])
    assert status == 421
    assert b"allowed_hosts" in body


async def test_a_missing_or_doubled_host_is_misdirected() -> None:
    assert (await _ask([]))[0] == 421
    assert (await _ask([("host", "localhost"), ("host", "localhost")]))[0] == 421
    assert (await _ask([("host", "localhost"), ("Host", "evil.example")]))[0] == 421


@pytest.mark.parametrize("origin", ["http://localhost", "https://localhost:3000", "HTTP://[::1]:80"])
async def test_origins_of_allowed_hosts_pass(origin: str) -> None:
    assert (await _ask([("host", "localhost"), ("origin", origin)]))[0] == PASSED


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://localhost.evil.example",
        "http://localhost@evil.example",
        "http://evil.example/localhost",
        "null",
        "",
        "localhost",
        "file://localhost",
        "chrome-extension://localhost",
        "http://localhost/",
        "http://localhost http://evil.example",
        "http://",
    ],
)
async def test_other_origins_are_forbidden(origin: str) -> None:
    assert (await _ask([("host", "localhost"), ("origin", origin)]))[0] == 403


async def test_two_origins_are_forbidden() -> None:
    two = [("origin", "http://localhost"), ("origin", "http://localhost")]
    assert (await _ask([("host", "localhost"), *two]))[0] == 403


async def test_a_refusal_repeats_nothing_the_caller_sent() -> None:
    _, body = await _ask([("host", "<script>evil")])
    assert b"evil" not in body
    assert await _ask([("host", "evil")], method="HEAD") == (421, b"")


async def test_a_flood_of_refusals_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    guard = HostOriginGuard(_inner, ())

    async def ignore(message: Message) -> None: ...

    async def nothing() -> Message:
        return {"type": "http.disconnect"}

    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            headers = [(b"host", b"evil\x1b[2J")]
            await guard({"type": "http", "method": "GET", "headers": headers}, nothing, ignore)
    assert len(caplog.records) == 1
    assert "\x1b" not in caplog.text
    assert "evil" in caplog.text


async def test_lifespan_passes_untouched() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["type"])

    async def nothing() -> Message:
        return {"type": "lifespan.startup"}

    async def ignore(message: Message) -> None: ...

    await HostOriginGuard(app, ())({"type": "lifespan"}, nothing, ignore)
    assert seen == ["lifespan"]


def _project(host: str, *allowed: str) -> Project:
    return Project(Path("/p"), Path("/p/agents.yaml"), "p", {}, host=host, allowed_hosts=allowed)


def test_the_allowed_hosts_of_a_project() -> None:  # C23
    local = {"localhost", "127.0.0.1", "::1"}
    project = _project("Puck.Incus", "gate.example:443", "[2001:db8::1]", "not a host")
    named = {"puck.incus", "gate.example", "2001:db8::1"}
    assert allowed_hosts_of(project, "127.0.0.1") == local | named
    assert allowed_hosts_of(project, "192.0.2.7") == local | named | {"192.0.2.7"}
    for wildcard in ("0.0.0.0", "::", ""):
        assert allowed_hosts_of(project, wildcard) == local | named


@pytest.mark.parametrize(
    ("host", "passes"),
    [
        ("a.example.com", True),
        ("A.Example.com:8443", True),
        ("a.b.example.com", False),  # a star is one part of the name
        ("example.com", False),
        ("a.example.com.evil.org", False),
        ("a-example.com", False),
        ("node7.incus", True),
        ("node77.incus", False),
        ("any.port", True),
        ("any.port:9", True),
    ],
)
async def test_a_star_stands_for_one_part_of_a_name(host: str, passes: bool) -> None:
    # PR-8
    allowed = ("*.Example.com", "node?.incus:*", "any.port:*")
    assert (await _ask([("host", host)], *allowed))[0] == (PASSED if passes else 421)
    origin = [("host", "localhost"), ("origin", f"https://{host}")]
    assert (await _ask(origin, *allowed))[0] == (PASSED if passes else 403)


def test_stars_of_a_project_reach_the_guard() -> None:
    assert "*.example.com" in allowed_hosts_of(_project("puck", "*.Example.com:443"), "0.0.0.0")
