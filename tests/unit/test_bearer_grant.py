"""What may be known of a bearer, and for how long it is lent."""

import asyncio
import base64
import json

import httpx2
import pytest

from pallas.access.bearer_lease import (
    BearerLease,
    Claims,
    LeaseSlot,
    claims_of,
    connecting,
    current_lease,
    lending,
)
from pallas.executors.fastagent.auth_seam import DownstreamAuth
from pallas.model import AuthHop, Event
from pallas.model.fingerprint import fingerprint


def _jwt(body: object) -> str:
    part = base64.urlsafe_b64encode(json.dumps(body).encode()).decode().rstrip("=")
    return f"e30.{part}.c2ln"


@pytest.mark.parametrize(
    ("token", "claims"),
    [
        (_jwt({"aud": "shop", "exp": 1_900_000_000}), Claims(("shop",), 1_900_000_000.0)),
        (_jwt({"aud": ["a", 3, "b"]}), Claims(("a", "b"), None)),
        (_jwt({"aud": list("abcdefgh")}), Claims(tuple("abcde"), None)),
        (_jwt({"exp": "soon"}), Claims()),
        (_jwt({"exp": True}), Claims()),
        (_jwt({"exp": -1}), Claims()),
        (_jwt([1]), Claims()),
        (_jwt("x"), Claims()),
        ("opaque", Claims()),
        ("a.b.c", Claims()),
        ("..", Claims()),
        ("e30.\u2603.x", Claims()),
        ("e30." + "[" * 8_000 + ".x", Claims()),
        (_jwt({"aud": "x" * 20_000}), Claims()),
    ],
)
def test_a_token_is_read_without_being_trusted(token: str, claims: Claims) -> None:
    assert claims_of(token) == claims


def test_claims_are_made_safe_to_show() -> None:
    (audience,) = claims_of(_jwt({"aud": "a\x1b]52;c;x\x07\u202eb\n"})).audience
    assert "\x1b" not in audience
    assert "\u202e" not in audience
    assert "\n" not in audience


def test_a_fingerprint_tells_tokens_apart_and_holds_nothing_of_them() -> None:
    assert fingerprint("token-a") == fingerprint("token-a")
    assert fingerprint("token-a") != fingerprint("token-b")
    assert "token" not in fingerprint("token-a")


def test_a_grant_is_empty_when_its_run_is_over() -> None:
    # PR-27
    told: list[Event] = []
    grant = BearerLease("r1", "one", "secret", told.append)
    assert "secret" not in repr(grant)
    slot = LeaseSlot()
    with lending(grant, slot):
        assert current_lease() is grant
        assert slot.lease is grant
        grant.report("rec", "forwarded", "secret", 200, "tools/call")
    assert current_lease() is None
    assert slot.lease is None
    assert grant.bearer is None
    grant.report("rec", "forwarded", "secret", 200, "tools/call")
    assert len(told) == 1
    assert "secret" not in repr(told)


async def test_work_that_outlives_its_run_finds_the_user_of_its_connection_or_nobody() -> None:
    # PR-27
    slot = LeaseSlot()
    first, second = BearerLease("1", "one", "token-a", print), BearerLease("2", "one", "token-a", print)
    step, looked = asyncio.Event(), asyncio.Event()
    found: list[BearerLease | None] = []

    async def background() -> None:
        for _ in range(3):
            await step.wait()
            step.clear()
            found.append(current_lease())
            looked.set()

    async def look() -> None:
        step.set()
        await looked.wait()
        looked.clear()

    with lending(first, slot), connecting(slot):
        task = asyncio.create_task(background())  # begun inside the run: it copies the run's context
        await look()
    await look()
    with lending(second, slot):
        await look()
    await task
    assert found == [first, None, second]


async def _sent(auth: DownstreamAuth, request: httpx2.Request) -> str | None:
    flow = auth.async_auth_flow(request)
    sent = await anext(flow)
    await flow.aclose()
    return sent.headers.get("authorization")


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://rec.example/mcp", True),
        ("http://rec.example:80/other", True),
        ("http://rec.example:81/mcp", False),
        ("https://rec.example/mcp", False),
        ("http://other.example/mcp", False),
        ("http://rec.example.other.example/mcp", False),
    ],
)
async def test_nothing_is_put_on_a_request_to_another_origin(url: str, sent: bool) -> None:
    # PR-28
    auth = DownstreamAuth("rec", "http://rec.example/mcp", forward=True, configured="")
    with lending(BearerLease("1", "one", "token-a", lambda event: None), LeaseSlot()):
        # As a redirect would bring it: with the header of the request before.
        request = httpx2.Request("POST", url, headers={"Authorization": "Bearer token-a"}, content=b"{}")
        assert await _sent(auth, request) == ("Bearer token-a" if sent else None)


async def test_a_request_that_got_no_answer_is_told_as_well() -> None:
    told: list[Event] = []
    auth = DownstreamAuth("rec", "http://rec.example/mcp", forward=True, configured="")
    body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}'
    with lending(BearerLease("1", "one", None, told.append), LeaseSlot()):
        await _sent(auth, httpx2.Request("POST", "http://rec.example/mcp", content=body))
    (hop,) = told
    assert isinstance(hop, AuthHop)
    assert (hop.status, hop.source, hop.method, hop.fingerprint) == (None, "none", "tools/call", "")
