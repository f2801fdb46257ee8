"""Everything at one port: the same as on ports of their own, to clients of both eras."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
import yaml
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from starlette.types import Receive, Scope, Send
from support.certificates import Authority, authority
from support.live import ERAS, MODERN_FIRST, agent_module, all_ready, ask, client, running, write_project
from support.ports import free_ports, is_free
from support.proxy import proxy
from support.raw_client import call, handshake, post
from support.turnstile import Turnstile, turnstile
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AgentState
from pallas.surfaces.agent_mcp import agent_app, endpoint
from pallas.surfaces.listener import Listener, bind

both_eras = pytest.mark.parametrize("era", MODERN_FIRST)
WAYS = ("own port", "one port", "public path")
GO = '***CALL_TOOL stile__go {{"who": "{}"}}'


def one_port(root: Path, agents: dict[str, str | None], *, own: tuple[str, ...] = (), **more: Any) -> Path:
    """A project with one port for everything; those of ``own`` have theirs beside it."""
    top = {"port": free_ports(1)[0], **more.pop("top", {})}
    keys = {name: {"port": None} for name in agents if name not in own}
    given: dict[str, dict[str, Any]] = more.pop("keys", {})
    for name, entry in given.items():
        keys.setdefault(name, {}).update(entry)
    return write_project(root, agents, keys=keys, top=top, **more)


@asynccontextmanager
async def reached(tmp_path: Path, way: str, stile: Turnstile) -> AsyncIterator[tuple[Fleet, str]]:
    """A fleet with the agent ``desk``, and its URL that way."""
    source = agent_module("desk", ("stile",))
    config = {"mcp": {"servers": {"stile": {"url": stile.url}}}}
    top = {"server_cards": True}
    if way == "own port":
        root = write_project(tmp_path, {"desk": source}, config=config, top=top)
    elif way == "one port":
        root = one_port(tmp_path, {"desk": source}, config=config, top=top)
    else:
        public = {"public_url": "https://agents.example/pallas"}
        root = one_port(tmp_path, {"desk": source}, own=("desk",), config=config, top=top | public)
    async with running(root) as fleet:
        url = fleet.agents[0].url
        if way == "public path":
            url = f"http://127.0.0.1:{fleet.project.port}/pallas/agents/desk/mcp"
        yield fleet, url


@asynccontextmanager
async def connected(url: str, era: str, trust: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(verify=trust or True, trust_env=False, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as found,
    ):
        yield found


def trusting(signer: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=signer.file)


# --- the contract: what a caller finds is the same, whichever way


@pytest.mark.slow
@both_eras
@pytest.mark.parametrize("way", WAYS)
async def test_calls_progress_and_health_are_the_same(tmp_path: Path, way: str, era: str) -> None:
    async with turnstile() as stile, reached(tmp_path, way, stile) as (_, url), connected(url, era) as desk:
        assert [tool.name for tool in (await desk.list_tools()).tools] == ["send_message", "get_health"]
        assert await ask(desk, "hello") == "hello"
        heard: list[str] = []

        async def progress(done: float, total: float | None, message: str | None) -> None:
            heard.append(message or "")

        running_call = asyncio.create_task(
            desk.call_tool("send_message", {"message": GO.format("me")}, progress_callback=progress)
        )
        await until(lambda: "stile/go: started" in heard)  # while the call runs: nothing holds it back
        assert not running_call.done()
        stile.let("me")
        result = await running_call
        assert not result.is_error
        assert "stile/go: completed" in heard
        health = await desk.call_tool("get_health", {})
        assert json.loads(health.content[0].text)["status"] == "ok"


@both_eras
@pytest.mark.parametrize("way", WAYS)
async def test_a_caller_that_goes_away_ends_its_run(tmp_path: Path, way: str, era: str) -> None:
    async with turnstile() as stile, reached(tmp_path, way, stile) as (fleet, url):
        writer = await call(url, era, GO.format("gone"), progress=7)
        await until(lambda: stile.arrived == ["gone"])
        writer.transport.abort()
        await until(lambda: fleet.agents[0].snapshot().runs_active == 0)


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_has_its_stream_and_its_end(tmp_path: Path, way: str) -> None:
    async with (
        turnstile() as stile,
        reached(tmp_path, way, stile) as (_, url),
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        session = {"mcp-session-id": await handshake(url), "mcp-protocol-version": "2025-11-25"}
        listening = session | {"accept": "text/event-stream"}
        async with http.stream("GET", url, headers=listening) as stream:
            assert stream.status_code == 200
            assert stream.headers["content-type"].startswith("text/event-stream")
        assert (await http.delete(url, headers=session)).status_code == 200
        gone = await http.post(
            url,
            headers=session | {"accept": "application/json, text/event-stream"},
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        )
        assert gone.status_code == 404


@pytest.mark.parametrize("way", WAYS)
async def test_other_methods_slashes_and_sizes_are_answered_alike(tmp_path: Path, way: str) -> None:
    async with turnstile() as stile, reached(tmp_path, way, stile) as (_, url):
        async with httpx2.AsyncClient(trust_env=False, timeout=60, follow_redirects=False) as http:
            for method, status in _METHODS.items():
                answer = await http.request(method, url)
                assert answer.status_code == status
                assert status != 405 or answer.headers["allow"] == "GET, POST, DELETE"
            card = await http.get(f"{url}/server-card")
            assert card.status_code == 200
            assert (await http.head(f"{url}/server-card")).status_code == 200
            assert (await http.get(f"{url}/nothing")).status_code == 404
            assert (await http.get(url.removesuffix("/mcp") + "/elsewhere")).status_code == 404
            big = await http.post(url, content=b"x" * (4 * 1024 * 1024 + 1))
            assert (big.status_code, big.json()["error"]["data"]["type"]) == (413, "PROTOCOL")
        reader, writer = await post(
            f"{url}/", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO}, {}
        )
        assert b" 200 " in await reader.readline()  # the body came with it
        writer.transport.abort()


_METHODS = {"HEAD": 405, "OPTIONS": 405, "PUT": 405, "GET": 400, "DELETE": 400}
_HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}


@pytest.mark.parametrize("way", WAYS)
async def test_a_foreign_host_or_origin_is_refused(tmp_path: Path, way: str) -> None:
    # PR-8
    async with (
        turnstile() as stile,
        reached(tmp_path, way, stile) as (_, url),
        httpx2.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        for path in (url, f"{url}/", f"{url}/server-card", url.replace("desk", "nobody")):
            assert (await http.get(path, headers={"host": "evil.example"})).status_code == 421
            assert (await http.get(path, headers={"origin": "https://evil.example"})).status_code == 403
        for name in ("x-forwarded-host", "forwarded", "x-original-host"):
            evil = {"host": "evil.example", name: "127.0.0.1"}
            assert (await http.get(url, headers=evil)).status_code == 421
        public = {"host": "agents.example", "origin": "https://agents.example"}
        passes = 400 if way == "public path" else 421
        assert (await http.get(url, headers=public)).status_code == passes


# --- what is at the one port


async def test_the_one_port_serves_registry_state_and_every_agent(tmp_path: Path) -> None:
    # PI-1, PI-2
    root = one_port(tmp_path, {"alone": None, "both": None}, own=("both",))
    async with running(root) as fleet, httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        origin = f"http://127.0.0.1:{fleet.project.port}"
        assert fleet.registry_url == f"{origin}/.well-known/mcp/server.json"
        alone, both = fleet.snapshot().agents
        assert (alone.port, alone.url) == (0, f"{origin}/agents/alone/mcp")
        assert both.url == f"http://127.0.0.1:{both.port}/mcp"
        for path in ("/healthz", "/readyz", "/metrics", "/.well-known/mcp/server.json", "/v0.1/servers"):
            assert (await http.get(origin + path)).status_code == 200
        entries = (await http.get(f"{origin}/v0.1/servers")).json()["servers"]
        urls = [entry["server"]["remotes"][0]["url"] for entry in entries]
        public = f"http://localhost:{fleet.project.port}/agents"
        assert urls == [f"{public}/alone/mcp", f"{public}/both/mcp"]
        for url in (alone.url, both.url, f"{origin}/agents/both/mcp"):
            for era in ERAS:
                async with connected(url, era) as found:
                    assert await ask(found, "hello") == "hello"
        stranger = await http.post(f"{origin}/agents/nobody-marker/mcp", json={"a": "marker"})
        assert stranger.status_code == 404
        assert "/v0.1/servers" in stranger.json()["error"]
        assert "marker" not in stranger.text + str(stranger.headers)


async def test_agents_call_one_another_and_wait_for_one_another_through_the_one_port(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    servers = {"low": {"url": f"http://127.0.0.1:{port}/agents/low/mcp"}}
    root = one_port(
        tmp_path,
        {"top": agent_module("top", ("low",)), "low": None},
        top={"port": port},
        keys={"top": {"depends_on": ["low"]}},
        config={"mcp": {"servers": servers}},
    )
    async with running(root) as fleet:
        assert all_ready(fleet)
        async with client(fleet, "top") as top:
            call_low = '***CALL_TOOL low__send_message {"message": "from above"}'
            assert "from above" in await ask(top, call_low)
            health = json.loads((await top.call_tool("get_health", {})).content[0].text)
            assert health["status"] == "ok"
        detail = await fleet.describe("low")
        own_tools = next(each for each in detail.servers if not each.server)
        assert [tool.name for tool in own_tools.tools] == ["send_message", "get_health"]
        outcome = await fleet.call_tool("low", "", "send_message", {"message": "by hand"})
        assert outcome.ok


async def test_names_with_dots_and_underscores_are_reached_by_name_and_by_slug(tmp_path: Path) -> None:
    root = one_port(
        tmp_path,
        {"a": None, "a.b": None, "c_d": None},
        keys={"a.b": {"module": "agents.dotted"}},
        files={"agents/dotted.py": agent_module("a.b")},
    )
    async with running(root) as fleet, httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        origin = f"http://127.0.0.1:{fleet.project.port}"
        for path, prompt in (("a", "a"), ("a.b", "a.b"), ("a%2Eb", "a.b"), ("c_d", "c_d"), ("c-d", "c_d")):
            async with connected(f"{origin}/agents/{path}/mcp", ERAS[0]) as found:
                assert [each.name for each in (await found.list_prompts()).prompts] == [f"{prompt}_history"]
        for path in ("a%2Fb", "a.", "c%5Fd%2F", "A"):
            assert (await http.get(f"{origin}/agents/{path}/mcp")).status_code == 404


@both_eras
async def test_agents_come_go_and_move_while_the_port_stays(tmp_path: Path, era: str) -> None:
    # PI-5: what no longer exists is not answered, what is new is.
    root = one_port(tmp_path, {"stays": None})
    own, other = free_ports(2)
    async with running(root) as fleet:
        origin = f"http://127.0.0.1:{fleet.project.port}"

        async def healthy() -> Any:
            return await fleet.agents[0].health()

        def surface() -> Any:
            return endpoint(agent_app(fleet.kernel, "guest", description="-", health=healthy), None)

        config = replace(fleet.project.agents["stays"], name="guest", port=own)
        address = fleet.ports.address(config)
        assert address.url == f"http://127.0.0.1:{own}/mcp"
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http, client(fleet, "stays") as stays:
            early = await http.get(f"{origin}/agents/guest/mcp")
            assert (early.status_code, early.headers["retry-after"]) == (503, "1")
            await address.open(surface())
            async with connected(f"{origin}/agents/guest/mcp", era) as guest:
                await guest.call_tool("get_health", {})
                moved = replace(config, port=other)
                assert await fleet.ports.move({address: moved}) == {}
                await until(lambda: is_free(own))
                async with connected(address.url, era) as there:
                    await there.call_tool("get_health", {})
                await guest.call_tool("get_health", {})  # at the one port nothing was noticed
                assert await fleet.ports.move({address: replace(config, port=0)}) == {}
                await until(lambda: is_free(other))
                assert address.url == f"{origin}/agents/guest/mcp"
                await guest.call_tool("get_health", {})
            await address.close()
            assert (await http.get(f"{origin}/agents/guest/mcp")).status_code == 404
            assert await ask(stays, "still here") == "still here"
            again = fleet.ports.address(config)
            await again.open(surface())
            async with connected(f"{origin}/agents/guest/mcp", era) as guest:
                await guest.call_tool("get_health", {})
            await again.close()


async def test_another_public_url_holds_at_once(tmp_path: Path) -> None:
    # PI-2, PR-8
    root = one_port(tmp_path, {"one": None}, top={"public_url": "https://old.example/before"})
    async with running(root) as fleet, httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        origin = f"http://127.0.0.1:{fleet.project.port}"

        async def found(path: str, host: str) -> int:
            answer = await http.get(f"{origin}{path}/agents/one/mcp", headers={"host": host})
            return answer.status_code

        assert await found("/before", "old.example") == 400  # the agent answers: that is no MCP request
        text = (root / "agents.yaml").read_text()
        (root / "agents.yaml").write_text(text.replace("old.example/before", "new.example/after"))
        fleet.control_fleet("reload")
        await until(lambda: fleet.project.public_url == "https://new.example/after")
        (entry,) = (await http.get(f"{origin}/v0.1/servers")).json()["servers"]
        assert entry["server"]["remotes"][0]["url"] == "https://new.example/after/agents/one/mcp"
        assert await found("/after", "new.example") == 400
        assert await found("/before", "new.example") == 404
        assert await found("", "old.example") == 421


async def test_a_port_that_is_taken_keeps_an_agent_where_it_is(tmp_path: Path) -> None:
    # PR-8
    async with running(write_project(tmp_path, {"one": None})) as fleet:
        (agent,) = fleet.agents
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            taken = replace(agent.config, port=holder.getsockname()[1])
            (fault,) = (await fleet.ports.move({agent.address: taken})).values()
            assert f"agent one: port {taken.port} is in use" in fault.message
            with pytest.raises(Exception, match=rf"agent two: port {taken.port} is in use"):
                fleet.ports.address(replace(taken, name="two"))
        async with client(fleet, "one") as one:
            assert await ask(one, "hello") == "hello"


async def test_an_agent_that_failed_still_answers_at_the_one_port(tmp_path: Path) -> None:
    # PI-12
    async with running(one_port(tmp_path, {"broken": "raise ValueError('no')", "well": None})) as fleet:
        assert fleet.agents[0].state is AgentState.ERROR
        for era in ERAS:
            async with client(fleet, "broken", era=era) as broken:
                health = json.loads((await broken.call_tool("get_health", {})).content[0].text)
                assert health["status"] == "error"


@pytest.mark.parametrize("own", [True, False])
async def test_one_agent_alone_is_at_its_own_port_or_else_at_the_one(tmp_path: Path, own: bool) -> None:
    # PR-4
    root = one_port(tmp_path, {"one": None, "two": None}, own=("one",) if own else ())
    project = load_project(root)
    async with running(root, only="one") as fleet, httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        port = project.agents["one"].port if own else project.port
        path = "/mcp" if own else "/agents/one/mcp"
        assert fleet.agents[0].url == f"http://127.0.0.1:{port}{path}"
        assert fleet.registry_url == ""
        async with client(fleet, "one") as one:
            assert await ask(one, "hello") == "hello"
        origin = f"http://127.0.0.1:{port}"
        assert (await http.get(f"{origin}/readyz")).status_code == 200
        assert (await http.get(f"{origin}/.well-known/mcp/server.json")).status_code == 404
        assert (await http.get(f"{origin}/agents/two/mcp")).status_code == 404
        assert is_free(project.port or 0) == own


async def test_a_taken_one_port_is_told_with_its_key(tmp_path: Path) -> None:
    # PR-8
    root = one_port(tmp_path, {"one": None})
    port = load_project(root).port
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", port or 0))
        holder.listen()
        fleet = Fleet(load_project(root), dev=True)
        with pytest.raises(Exception, match=rf"agents\.yaml: port: port {port} is in use"):
            fleet.reserve()
        await fleet.stop()


# --- behind a proxy


@both_eras
@pytest.mark.parametrize("keeps", ["path and host", "neither"])
async def test_clients_work_through_a_proxy_that_ends_tls(tmp_path: Path, keeps: str, era: str) -> None:
    # PI-2, PR-8
    (tmp_path / "ca").mkdir()
    signer = authority(tmp_path / "ca")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*signer.issue(tmp_path / "ca"))
    (port,) = free_ports(1)
    async with turnstile() as stile:
        root = one_port(
            tmp_path / "project",
            {"desk": agent_module("desk", ("stile",))},
            top={"port": port, "server_cards": True},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
            keys={"desk": {"icons": [{"src": "desk.svg"}, {"src": "/top.svg"}]}},
        )
        changes = {} if keeps == "path and host" else {"strip": "/pallas", "host": "127.0.0.1:1"}
        async with proxy(port, tls, **changes) as before:
            public = f"https://localhost:{before.port}/pallas"
            text = (root / "agents.yaml").read_text()
            (root / "agents.yaml").write_text(text + f"public_url: {public}\n")
            async with running(root), httpx2.AsyncClient(verify=trusting(signer), timeout=60) as http:
                (entry,) = (await http.get(f"{public}/v0.1/servers")).json()["servers"]
                (remote,) = entry["server"]["remotes"]
                assert remote["url"] == f"{public}/agents/desk/mcp"
                icons = [icon["src"] for icon in entry["server"]["icons"]]
                assert icons == [f"{public}/desk.svg", f"https://localhost:{before.port}/top.svg"]
                catalog = (await http.get(f"{public}/.well-known/ai-catalog.json")).json()
                card = (await http.get(catalog["entries"][0]["url"])).json()
                assert card["remotes"][0]["url"] == remote["url"]
                async with connected(remote["url"], era, trusting(signer)) as desk:
                    heard: list[str] = []

                    async def progress(done: float, total: float | None, message: str | None) -> None:
                        heard.append(message or "")

                    under_way = asyncio.create_task(
                        desk.call_tool(
                            "send_message", {"message": GO.format("me")}, progress_callback=progress
                        )
                    )
                    await until(lambda: "stile/go: started" in heard)
                    assert not under_way.done()
                    stile.let("me")
                    assert not (await under_way).is_error
                assert all(" /pallas/" in line for line in before.seen)
                evil = {"host": "evil.example"}
                assert (await http.get(f"{public}/healthz", headers=evil)).status_code == (
                    421 if keeps == "path and host" else 200
                )


async def test_what_forwarded_headers_say_is_never_believed() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        said = f"{scope['scheme']} {scope['client'][0]} {scope['root_path']}|".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})

    listener = Listener(app, bind("127.0.0.1", 0, "test"), lifespan=False)
    await listener.start()
    try:
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            headers = {
                "x-forwarded-for": "203.0.113.7",
                "x-forwarded-proto": "https",
                "x-forwarded-prefix": "/evil",
                "forwarded": "for=203.0.113.7;proto=https",
            }
            answer = await http.get(f"http://127.0.0.1:{listener.port}/", headers=headers)
            assert answer.text == "http 127.0.0.1 |"
    finally:
        await listener.stop()


async def test_the_url_of_an_agent_is_one_that_the_address_it_is_bound_to_answers(tmp_path: Path) -> None:
    # PR-8
    root = write_project(tmp_path, {"one": None})
    text = yaml.safe_load((root / "agents.yaml").read_text())
    for address, host in (("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("127.0.0.2", "127.0.0.2")):
        (root / "agents.yaml").write_text(yaml.safe_dump(text | {"bind": address}))
        async with running(root) as fleet:
            assert urlsplit(fleet.agents[0].url).hostname == host
            async with client(fleet, "one") as one:
                assert await ask(one, "hello") == "hello"
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                assert (await http.get(fleet.registry_url)).status_code == 200
