"""Who gets through to an agent that asks callers who they are, in both protocol eras."""

import asyncio
import json
import logging
from time import monotonic
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import (
    build_protected_resource_metadata_discovery_urls,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
)
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import OAuthClientMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed
from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult
from support.executors import FakeExecutor
from support.guarded import CI, GUEST, MODERN, OPS, TOKENS, Guarded, call, guarded, headers, token
from support.issuer import AUDIENCE, Issuer, SigningKey, issuing
from support.live import ERAS, ask

from pallas.config.auth import AuthConfig, IssuerConfig
from pallas.model import RunStarted
from pallas.surfaces.token_attempts import BURST, Attempts

pytestmark = pytest.mark.parametrize("era", ERAS)
AUTH = AuthConfig(tokens=TOKENS, scopes=("run",))


def taking(issuer: Issuer, **more: Any) -> AuthConfig:
    config = IssuerConfig("corp", issuer.issuer, (AUDIENCE,), jwks_url=issuer.url)
    return AuthConfig(**{"tokens": TOKENS, "issuers": {"corp": config}} | more)


async def post(
    served: Guarded, body: Any, lines: dict[str, str], bearer: str | None = None
) -> httpx2.Response:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with served.http(bearer) as http:
        return await http.post("/mcp", content=raw, headers=lines)


async def send(served: Guarded, era: str, bearer: str | None = None, **more: str) -> httpx2.Response:
    """``send_message`` in one request; without a session in the handshake era."""
    body = call("tools/call", {"name": "send_message", "arguments": {"message": "hello"}}, era)
    return await post(served, body, headers("tools/call", "send_message", era, **more), bearer)


async def healthy(connected: Client) -> bool:
    """One call of ``get_health`` and no more: ``call_tool`` lists the tools after it, to check the result."""
    request = CallToolRequest(params=CallToolRequestParams(name="get_health", arguments={}))
    return not (await connected.session.send_request(request, CallToolResult)).is_error


async def test_without_a_token_only_a_health_check_goes_through(era: str) -> None:
    # PR-31
    async with guarded(AUTH) as served:
        async with served.client(era) as nobody:
            assert await healthy(nobody)
            for work in (
                nobody.call_tool("send_message", {"message": "hello"}),
                nobody.call_tool("echo", {"message": "hello"}),
                nobody.call_tool("no_such_tool", {}),
                nobody.list_tools(),
                nobody.list_prompts(),
                nobody.get_prompt("echo_history", {"conversation_id": "c"}),
            ):
                with pytest.raises(MCPError, match="this agent needs a token"):
                    await work
        assert served.executor.turns == []
        async with served.client(era, CI) as known:
            assert await ask(known, "hello", conversation_id="c") == "0:hello"
            assert [tool.name for tool in (await known.list_tools()).tools] == ["send_message", "get_health"]
            assert (await known.get_prompt("echo_history", {"conversation_id": "c"})).messages


async def test_what_is_refused_says_how_and_repeats_nothing(era: str) -> None:
    async with guarded(AUTH) as served:
        none = await send(served, era)
        wrong = await send(served, era, "wrong-token-of-nobody")
        scope = await send(served, era, GUEST)
    assert (none.status_code, wrong.status_code, scope.status_code) == (401, 401, 403)
    assert none.headers["www-authenticate"] == 'Bearer scope="run"'
    assert wrong.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert scope.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="run"'
    for answer in (none, wrong, scope):
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"
        assert len(answer.content) < 300
        assert "wrong-token" not in answer.text
        assert answer.json()["error"]["data"]["type"] == "AUTH"
        assert "mcp-session-id" not in answer.headers


async def test_a_wrong_token_is_refused_for_what_is_public_too(era: str) -> None:
    fast = Attempts(lambda: monotonic() * 1_000)
    async with guarded(AUTH, attempts=fast) as served:
        body = call("tools/call", {"name": "get_health", "arguments": {}}, MODERN)
        lines = headers("tools/call", "get_health", MODERN)
        assert (await post(served, body, lines)).status_code == 200
        for authorization in (
            "Bearer wrong-token", "Bearer", f"Basic {CI}", CI, f"Bearer {CI}x",
            f"Bearer {CI} {CI}", f"Bearer {'x' * 9_000}", "Bearer \xff",
        ):  # fmt: skip
            raw = authorization.encode("latin-1")
            answer = await post(served, body, lines | {"authorization": raw})  # type: ignore[dict-item]
            assert answer.status_code == 401, authorization
        async with served.http() as http:
            twice = [*lines.items(), ("authorization", f"Bearer {CI}"), ("authorization", f"Bearer {CI}")]
            assert (await http.post("/mcp", json=body, headers=twice)).status_code == 401
            for query in ("token", "access_token", "authorization"):
                gone = await http.post(
                    f"/mcp?{query}={CI}", json=call("tools/list"), headers=headers("tools/list")
                )
                assert gone.status_code == 401


async def test_without_public_health_nothing_goes_through(era: str) -> None:
    async with guarded(AuthConfig(tokens=TOKENS, public_health=False)) as served:
        for method, name in (
            ("server/discover", ""),
            ("tools/call", "get_health"),
            ("initialize", ""),
            ("ping", ""),
        ):
            params = {"name": name, "arguments": {}} if name else None
            answer = await post(served, call(method, params, era), headers(method, name, era))
            assert answer.status_code == 401, method
        async with served.client(era, CI) as known:
            assert not (await known.call_tool("get_health", {})).is_error


async def test_every_path_and_method_is_behind_the_gate_but_what_is_public(era: str) -> None:
    async with guarded(AUTH) as served, served.http() as http:
        assert (await http.get("/mcp/server-card")).status_code == 200
        for path in (
            "/mcp",
            "/mcp/",
            "//mcp",
            "/mcp/../mcp",
            "/%6dcp",
            "/messages",
            "/sse",
            "/",
            "/mcp/server-card/",
        ):
            for method in ("GET", "POST", "PUT", "PATCH", "OPTIONS", "HEAD", "DELETE"):
                answer = await http.request(method, path)
                assert answer.status_code == 401, (method, path)
        for method in ("POST", "PUT", "OPTIONS"):
            assert (await http.request(method, "/mcp/server-card")).status_code == 401
        # Not even with a name in its Host that says another path.
        odd = await http.post("/mcp", headers={"host": "127.0.0.1/mcp/server-card?"})
        assert odd.status_code == 421


SMUGGLED = [
    # Two names: whoever takes the first, and whoever takes the last, must see the same.
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_health","name":"send_message",'
    b'"arguments":{"message":"x"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"send_message","name":"get_health",'
    b'"arguments":{}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/list","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_health"},"params":{"name":"echo"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"na\\u006de":"send_message","name":"get_health"}}',
    # Several at once.
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]',
    b'[{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_health"}}]',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
    # Names that are nearly right.
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_health "}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"GET_HEALTH"}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":["get_health"]}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["get_health"]}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/CALL","params":{"name":"get_health"}}',
    b'{"jsonrpc":"2.0","id":1,"method":["ping"]}',
    b'{"jsonrpc":"2.0","id":1,"Method":"ping","method":"tools/list"}',
    # What no two readers understand alike.
    b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
    b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
    b'{"jsonrpc":"2.0","id":1,"method":"ping"//}\n}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
    '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'.encode("utf-16-le"),
    b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"\xff"}',
    b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}',
    b'{"a":' * 30_000, b"[" * 60_000, b"null", b'"ping"', b"", b" ",
    b'{"jsonrpc":"2.0","id":1,"method":"ping","x":"' + b"x" * 70_000 + b'"}',
]  # fmt: skip


async def test_nothing_is_smuggled_past_by_an_odd_body(era: str) -> None:
    async with guarded(AUTH) as served:
        for body in SMUGGLED:
            for method, name in (("ping", ""), ("tools/call", "get_health")):
                answer = await post(served, body, headers(method, name, era))
                assert answer.status_code == 401, body[:100]
        assert served.executor.turns == []


async def test_headers_alone_let_nobody_through(era: str) -> None:
    async with guarded(AUTH) as served:
        body = call("tools/call", {"name": "send_message", "arguments": {"message": "x"}}, era)
        health = call("tools/call", {"name": "get_health", "arguments": {}}, era)
        for method, name in (("tools/call", "get_health"), ("server/discover", ""), ("ping", "")):
            lines = headers(method, name) | headers(method, name, era)
            assert (await post(served, body, lines)).status_code == 401
        # Nor does a body that its headers call by another name.
        for lines in (
            headers("tools/call", "send_message"), headers("tools/list"),
            headers("tools/call", "=?base64?c2VuZF9tZXNzYWdl?="),
        ):  # fmt: skip
            assert (await post(served, health, lines)).status_code == 401
        twice = [*headers("tools/call", "get_health").items(), ("mcp-name", "send_message")]
        async with served.http() as http:
            assert (await http.post("/mcp", json=health, headers=twice)).status_code == 401
        assert served.executor.turns == []


async def test_what_goes_on_is_what_was_understood(era: str) -> None:
    """The body that is looked at is not the one that is passed on, only its meaning is."""
    async with guarded(AUTH) as served:
        loose = json.dumps(call("tools/call", {"name": "get_health", "arguments": {}}, MODERN), indent=4)
        raw = ("\n\t " + loose.replace('"get_health"', '"get_\\u0068ealth"') + " \n").encode()
        answer = await post(served, raw, headers("tools/call", "get_health"))
        assert answer.status_code == 200
        assert "ok" in answer.text

        async def pieces() -> Any:
            for index in range(0, len(raw), 50):
                yield raw[index : index + 50]

        async with served.http() as http:
            chunked = await http.post("/mcp", content=pieces(), headers=headers("tools/call", "get_health"))
        assert chunked.status_code == 200


async def test_a_large_request_hears_that_it_needs_a_token(era: str) -> None:
    async with guarded(AUTH) as served:
        body = call("tools/call", {"name": "send_message", "arguments": {"message": "x" * 3_000_000}}, era)
        assert (await post(served, body, headers("tools/call", "send_message", era))).status_code == 401
        wrong = await post(served, body, headers("tools/call", "send_message", era), "wrong-token")
        assert wrong.status_code == 401


async def test_who_lacks_a_scope_may_still_check_the_health(era: str) -> None:
    async with guarded(AuthConfig(tokens=TOKENS, scopes=("run", "read"))) as served:
        async with served.client(era, CI) as half:
            assert await healthy(half)
            with pytest.raises(MCPError, match="may not do that"):
                await half.call_tool("send_message", {"message": "hello"})
        answer = await send(served, era, CI)
        assert answer.status_code == 403
        assert extract_scope_from_www_auth(answer) == "run read"
        async with served.client(era, OPS) as whole:
            assert await ask(whole, "hello") == "0:hello"


async def test_a_token_that_is_over_or_taken_back_is_refused_at_once(era: str) -> None:
    async with guarded(AUTH) as served, served.client(era, CI) as known:
        assert await ask(known, "hello", conversation_id="c") == "0:hello"
        served.asks(AuthConfig(tokens=token("ops", OPS, "run")))
        with pytest.raises(MCPError, match="this token is not accepted here"):
            await known.call_tool("send_message", {"message": "hello"})
        served.asks(AuthConfig(tokens=token("ci", CI, "run", expires=1.0)))
        with pytest.raises(MCPError, match="this token is not accepted here"):
            await known.call_tool("send_message", {"message": "hello"})
        served.asks(AUTH)
        assert await ask(known, "more", conversation_id="c") == "2:more"


async def test_with_another_token_of_the_same_name_a_caller_goes_on(era: str) -> None:
    """It is who calls that counts: a token that was turned keeps its caller's conversations."""
    fresh = "pal_" + "F" * 43
    async with guarded(AUTH) as served:
        async with served.client(era, CI) as known:
            assert await ask(known, "one", conversation_id="c") == "0:one"
        served.asks(AuthConfig(tokens=token("ci", fresh, "run") | token("ops", OPS, "run")))
        async with served.client(era, fresh) as known:
            assert await ask(known, "two", conversation_id="c") == "2:two"
        async with served.client(era, OPS) as other:
            refused = await other.call_tool("send_message", {"message": "x", "conversation_id": "c"})
            assert "conversation not found" in refused.content[0].text  # type: ignore[union-attr]


async def test_a_refreshed_jwt_of_the_same_subject_goes_on(era: str) -> None:
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        async with served.client(era, issuer.token("ada", jti="1")) as ada:
            assert await ask(ada, "one", conversation_id="c") == "0:one"
        issuer.keys.append(SigningKey("two"))
        async with served.client(era, issuer.token("ada", jti="2")) as ada:
            assert await ask(ada, "two", conversation_id="c") == "2:two"
        async with served.client(era, issuer.token("grace")) as grace:
            refused = await grace.call_tool("send_message", {"message": "x", "conversation_id": "c"})
            assert "conversation not found" in refused.content[0].text  # type: ignore[union-attr]
        started = [event for event in served.hub.since(0).events if isinstance(event, RunStarted)]
    assert len({event.principal for event in started[:2]}) == 2
    assert len({event.identity for event in started[:2]}) == 1
    assert started[0].identity.startswith("jwt:corp:")


async def test_a_key_that_is_turned_is_found(era: str) -> None:
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        async with served.client(era, issuer.token()) as ada:
            assert await ask(ada, "hello") == "0:hello"
        old = issuer.token()
        keys = served.inbound.verifier._sets[issuer.url]
        issuer.keys = [SigningKey("two", "ES256")]
        keys._tried -= 60  # half a minute later
        async with served.client(era, issuer.token()) as ada:
            assert await ask(ada, "hello") == "0:hello"
        assert (await send(served, era, old)).status_code == 401
        issuer.status = 503
        async with served.client(era, issuer.token()) as ada:
            assert await ask(ada, "hello") == "0:hello"


async def test_an_issuer_that_is_away_from_the_start_is_told_as_such(
    era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        issuer.status = 500
        answer = await send(served, era, issuer.token())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
        async with served.client(era, CI) as known:  # others are not held up
            assert await ask(known, "hello") == "0:hello"
    assert "HTTP 500" in caplog.text


async def test_a_session_belongs_to_whom_it_was_opened_by(era: str) -> None:
    if era == MODERN:
        return  # there are none
    opening = call("initialize", {"protocolVersion": "2025-11-25", "capabilities": {},
                                  "clientInfo": {"name": "raw", "version": "1"}}, era)  # fmt: skip
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    health = call("tools/call", {"name": "get_health", "arguments": {}}, era)
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        first, refreshed = issuer.token("ada", jti="1"), issuer.token("ada", jti="2")
        for owner, same, others in (
            (None, None, (CI, first)),
            (CI, CI, (None, OPS, first)),
            (first, refreshed, (None, CI, issuer.token("grace"))),
        ):
            opened = await post(served, opening, headers("initialize", era=era), owner)
            assert opened.status_code == 200
            lines = headers("", era=era) | {
                "mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"
            }  # fmt: skip
            assert (await post(served, note, lines, same)).status_code == 202
            for other in others:
                assert (await post(served, health, lines, other)).status_code == 404
                async with served.http(other) as http:
                    assert (await http.delete("/mcp", headers=lines)).status_code == 404
            assert (await post(served, health, lines, same)).status_code == 200
            async with served.http(same) as http:
                assert (await http.delete("/mcp", headers=lines)).status_code == 200
            assert (await post(served, health, lines, same)).status_code == 404


async def test_a_session_without_a_token_can_do_no_more_than_check(era: str) -> None:
    if era == MODERN:
        return
    async with guarded(AUTH) as served, served.client(era) as nobody:
        assert await healthy(nobody)
        with pytest.raises(MCPError):
            await nobody.call_tool("send_message", {"message": "hello"})
        async with served.http() as http:  # nor is there a stream to listen at
            assert (await http.get("/mcp", headers={"accept": "text/event-stream"})).status_code == 401


async def test_wrong_tokens_are_limited_and_who_came_before_goes_on(era: str) -> None:
    now = 100.0
    async with guarded(AUTH, attempts=Attempts(lambda: now)) as served:
        assert (await send(served, era, CI)).status_code in (200, 400)
        for _ in range(BURST):
            assert (await send(served, era, "wrong-token-of-nobody")).status_code == 401
        held_up = await send(served, era, "wrong-token-of-nobody")
        assert held_up.status_code == 429
        assert int(held_up.headers["retry-after"]) >= 1
        assert (await send(served, era, OPS)).status_code == 429  # a guess that is right is none
        assert (await send(served, era, CI)).status_code in (200, 400)
        assert (await send(served, era)).status_code == 401
        now += 1.1
        assert (await send(served, era, OPS)).status_code in (200, 400)


async def test_a_token_that_is_over_is_no_guess(era: str) -> None:
    async with issuing() as issuer, guarded(taking(issuer), attempts=Attempts(lambda: 1.0)) as served:
        late = issuer.token(exp=1_000)
        for _ in range(BURST + 5):
            assert (await send(served, era, late)).status_code == 401
        assert (await send(served, era, OPS)).status_code in (200, 400)


async def test_metadata_leads_the_sdks_client_to_the_issuer(era: str) -> None:
    async with issuing() as issuer, guarded(taking(issuer, scopes=("run",))) as served, served.http() as http:
        none = await send(served, era)
        wrong = await send(served, era, "wrong-token")
        assert extract_scope_from_www_auth(none) == "run"
        assert extract_field_from_www_auth(wrong, "error") == "invalid_token"
        for answer in (none, wrong):
            named = extract_resource_metadata_from_www_auth(answer)
            assert named == f"http://127.0.0.1:{served.port}/.well-known/oauth-protected-resource/mcp"
            urls = build_protected_resource_metadata_discovery_urls(named, served.url)
            assert urls[0] == urls[1]
        found = await http.get(urls[0])
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (200, "*")
        metadata = ProtectedResourceMetadata.model_validate_json(found.content)
        assert check_resource_allowed(served.url, str(metadata.resource))
        assert [str(each) for each in metadata.authorization_servers] == [issuer.issuer]
        assert (metadata.scopes_supported, metadata.bearer_methods_supported) == (["run"], ["header"])
        assert found.json()["resource"] == served.url
        assert (await http.head(urls[0])).content == b""
        assert (await http.post(urls[0])).status_code == 405


class _Storage:
    """Holds nothing: a client that has never been here."""

    async def get_tokens(self) -> None: ...
    async def set_tokens(self, tokens: Any) -> None: ...
    async def get_client_info(self) -> None: ...
    async def set_client_info(self, client_info: Any) -> None: ...


async def test_the_sdks_oauth_client_finds_its_way_to_the_issuer(era: str) -> None:
    async with issuing() as issuer:
        issuer.issuer = issuer.url.removesuffix("/jwks.json")
        async with guarded(taking(issuer, scopes=("run",))) as served:
            provider = OAuthClientProvider(
                served.url,
                OAuthClientMetadata(redirect_uris=["http://127.0.0.1:1/back"]),  # type: ignore[list-item]
                _Storage(),  # type: ignore[arg-type]
            )
            issuer.status = 404  # as far as that: what it does with the issuer is its own business
            with pytest.raises((MCPError, OAuthFlowError, ExceptionGroup)):
                async with (
                    create_mcp_http_client(auth=provider) as http,
                    Client(streamable_http_client(served.url, http_client=http), mode=era) as connected,
                ):
                    await connected.list_tools()
            metadata = provider.context.protected_resource_metadata
            assert metadata is not None
            assert str(metadata.resource) == served.url
            assert provider.context.client_metadata.scope == "run"
            assert "/.well-known/oauth-authorization-server" in issuer.paths


async def test_with_tokens_alone_there_is_no_metadata(era: str) -> None:
    async with guarded(AUTH) as served, served.http() as http:
        assert (await http.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert "resource_metadata" not in (await send(served, era)).headers["www-authenticate"]
        local = {"local": IssuerConfig("local", "dev", ("pallas",), pem=SigningKey(None).pem)}
        served.asks(AuthConfig(issuers=local))  # an issuer without an address
        assert (await http.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
        assert (await send(served, era)).headers["www-authenticate"] == 'Bearer realm="pallas"'


async def test_no_token_stands_in_a_log_or_an_event(era: str, caplog: pytest.LogCaptureFixture) -> None:
    # PR-36
    caplog.set_level(logging.DEBUG)
    guess = "guess-that-nobody-gave-9c1d"
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        person = "ada.lovelace@example.com"
        bearer, late = issuer.token(person), issuer.token(person, exp=1_000)
        impostor = issuer.token(person, key=SigningKey("one"))
        for each in (CI, bearer, guess, late, impostor, None):
            await send(served, era, each)
        async with served.client(era, bearer) as ada:
            await ask(ada, "hello")
        events = [repr(event) for event in served.hub.since(0).events]
        own = served.inbound.verifier.own
    said = "\n".join(record.getMessage() + str(vars(record)) for record in caplog.records) + "\n".join(events)
    for secret in (
        CI,
        guess,
        bearer,
        late,
        impostor,
        own,
        person,
        bearer.split(".")[1],
        bearer.split(".")[2],
    ):
        assert secret not in said
    refused = [
        record.getMessage() for record in caplog.records if "a token was refused" in record.getMessage()
    ]
    assert len(refused) == 1  # the others within ten seconds are counted
    assert "fingerprint" in refused[0]
    assert "no caller has this token" in refused[0]


async def test_in_dev_on_loopback_nobody_is_asked_unless_the_project_wants_it(era: str) -> None:
    async with guarded(AUTH, dev=True) as served:
        async with served.client(era) as nobody:
            assert await ask(nobody, "hello") == "0:hello"
        served.asks(AuthConfig(tokens=TOKENS, dev=True))
        assert (await send(served, era)).status_code == 401
        served.asks(AuthConfig(tokens=TOKENS, dev=True, off=True))
        async with served.client(era) as nobody:
            assert await ask(nobody, "hello") == "0:hello"


async def test_an_agent_of_which_nothing_is_known_lets_nobody_in(era: str) -> None:
    async with guarded(AUTH) as served:
        served.inbound._rules.clear()
        for bearer in (None, CI):
            assert (await send(served, era, bearer)).status_code == 401
        health = call("tools/call", {"name": "get_health", "arguments": {}}, MODERN)
        assert (await post(served, health, headers("tools/call", "get_health"))).status_code == 401


async def test_the_fleet_itself_may_list_and_nothing_else(era: str) -> None:
    async with guarded(AUTH) as served:
        own = served.inbound.own_token("echo")
        assert own is not None
        async with served.client(era, own) as fleet:
            assert len((await fleet.list_tools()).tools) == 2
            with pytest.raises(MCPError, match="may not do that"):
                await fleet.call_tool("send_message", {"message": "hello"})
        served.asks(None)
        assert served.inbound.own_token("echo") is None


async def test_behind_the_gate_it_is_asked_once_more(era: str) -> None:
    """Whatever comes by the gate unseen is refused by what knows the tool."""
    async with guarded(AUTH, gate=False) as served, served.client(era, CI) as unseen:
        assert not (await unseen.call_tool("get_health", {})).is_error
        for tool in ("send_message", "echo"):
            refused = await unseen.call_tool(tool, {"message": "hello"})
            assert refused.is_error
            assert "this agent needs a token" in refused.content[0].text  # type: ignore[union-attr]
        with pytest.raises(MCPError, match="this agent needs a token"):
            await unseen.get_prompt("echo_history", {"conversation_id": "c"})
        assert served.executor.turns == []
        served.asks(None)
        assert await ask(unseen, "hello") == "0:hello"


@pytest.mark.slow
async def test_many_callers_at_once_are_told_apart(era: str) -> None:
    async with issuing() as issuer, guarded(taking(issuer)) as served:
        served.executor = FakeExecutor()

        async def one(number: int) -> str:
            bearer = issuer.token(f"caller-{number % 10}", jti=str(number)) if number % 2 else CI
            async with served.client(era, bearer) as known:
                return await ask(known, str(number), conversation_id=f"c-{number}")

        assert await asyncio.gather(*(one(n) for n in range(30))) == [f"0:{n}" for n in range(30)]
        started = {e.preview: e.identity for e in served.hub.since(0).events if isinstance(e, RunStarted)}
    assert {started[str(n)] for n in range(0, 30, 2)} == {"token:ci"}
    assert all(started[str(n)] == started[str((n + 10) % 30)] for n in range(1, 30, 2))
    assert len({started[str(n)] for n in range(1, 30, 2)}) == 5
