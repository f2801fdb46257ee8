"""The one port: which agent a path is for, and what that agent sees of it."""

import asyncio
import json
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.types import Receive, Scope, Send

from pallas.surfaces.ingress import AgentMount, Ingress, slashless


class App:
    """Answers with its name and the path that it saw."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = f"{self.name} {scope['method']} {scope['path']} {scope['raw_path'].decode()}"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said.encode()})


async def ask(app: Any, raw: str, method: str = "GET") -> tuple[int, dict[str, str], str]:
    """Status, headers and body for a path as it stands in a request."""
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": unquote(raw), "raw_path": raw.encode(), "headers": []}
    await app(scope, receive, send)
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"].decode()


def ingress(prefix: str = "", names: tuple[str, ...] = ("a", "a.b", "a_c", "agents")) -> Ingress:
    made = Ingress(App("fleet"), prefix=prefix)
    for name in names:
        place = AgentMount((name, name.replace("_", "-")))
        place.app = App(name)
        made.add(place)
    return made


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/agents/a/mcp", "a GET /mcp /mcp"),
        ("/agents/a/mcp/server-card", "a GET /mcp/server-card /mcp/server-card"),
        ("/agents/a.b/mcp", "a.b GET /mcp /mcp"),
        ("/agents/a%2Eb/mcp", "a.b GET /mcp /mcp"),
        ("/agents/a_c/mcp", "a_c GET /mcp /mcp"),
        ("/agents/a-c/mcp", "a_c GET /mcp /mcp"),
        ("/agents/agents/mcp", "agents GET /mcp /mcp"),
        ("/agents/a/x%20y", "a GET /x y /x%20y"),
        ("/agents/a/", "a GET / /"),
        ("/agents/a", "a GET / /"),
        (
            "/.well-known/oauth-protected-resource/agents/a/mcp",
            "a GET /.well-known/oauth-protected-resource/mcp /.well-known/oauth-protected-resource/mcp",
        ),
        (
            "/.well-known/mcp/server.json",
            "fleet GET /.well-known/mcp/server.json /.well-known/mcp/server.json",
        ),
        ("/", "fleet GET / /"),
        ("/v0.1/servers/x%2Fa/versions", "fleet GET /v0.1/servers/x/a/versions /v0.1/servers/x%2Fa/versions"),
        ("/agentsx/a/mcp", "fleet GET /agentsx/a/mcp /agentsx/a/mcp"),
    ],
)
async def test_a_path_goes_to_the_agent_it_names_which_sees_its_own_part_of_it(path: str, seen: str) -> None:
    assert (await ask(ingress(), path))[2] == seen


@pytest.mark.parametrize(
    "path",
    [
        "/agents", "/agents/", "/agents//mcp", "/agents/ab/mcp", "/agents/A/mcp", "/agents/a%2Fb/mcp",
        "/agents/a%2e/mcp", "/agents/../agents/mcp", "/agents/a%00/mcp", "/agents/%61%2F/mcp",
        "/.well-known/oauth-protected-resource/agents/nobody/mcp", "/agents/secret-marker/mcp",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_an_agent_that_is_not_there_is_404_and_nothing_of_the_request_comes_back(
    path: str, method: str
) -> None:
    status, headers, body = await ask(ingress(), path, method)
    assert (status, headers["content-type"]) == (404, "application/json")
    assert "/v0.1/servers" in json.loads(body)["error"]
    assert "marker" not in body
    assert (await ask(ingress(), path, "HEAD"))[2] == ""


@pytest.mark.parametrize("prefix", ["/pallas", "/deep/er/path", "/a"])
@pytest.mark.parametrize(
    "path",
    [
        "/agents/a/mcp", "/healthz", "/.well-known/mcp/server.json", "/.well-known/what/agents/a.b/mcp",
        "/agents/a/mcp/",
    ],
)  # fmt: skip
async def test_a_proxy_may_leave_the_path_of_public_url_on_or_take_it_off(prefix: str, path: str) -> None:
    bare = await ask(ingress(prefix), path)
    assert await ask(ingress(prefix), prefix + path) == bare
    assert bare == await ask(ingress(), path)


async def test_the_document_of_an_agent_is_found_behind_a_proxy_that_keeps_the_path() -> None:
    # RFC 9728: the well-known part goes before the whole path of the resource.
    _, _, seen = await ask(ingress("/pallas"), "/.well-known/oauth-protected-resource/pallas/agents/a/mcp")
    assert seen.startswith("a GET /.well-known/oauth-protected-resource/mcp ")


async def test_only_the_whole_prefix_counts() -> None:
    assert (await ask(ingress("/pallas"), "/pallasx/healthz"))[2].startswith("fleet GET /pallasx/healthz ")
    assert (await ask(ingress("/pallas"), "/x/pallas/healthz"))[2].startswith("fleet GET /x/pallas/healthz ")


async def test_an_agent_that_is_not_open_yet_asks_to_come_again_and_one_that_left_is_unknown() -> None:
    made = ingress()
    place = AgentMount(("late",))
    made.add(place)
    status, headers, body = await ask(made, "/agents/late/mcp")
    assert (status, headers["retry-after"]) == (503, "1")
    assert "try again" in json.loads(body)["error"]
    place.app = App("late")
    assert (await ask(made, "/agents/late/mcp"))[0] == 200
    await place.leave()
    assert (await ask(made, "/agents/late/mcp"))[0] == 503
    made.remove(place)
    assert (await ask(made, "/agents/late/mcp"))[0] == 404
    # Behind a balancer another fleet may answer.
    made.end()
    status, headers, _ = await ask(made, "/agents/late/mcp")
    assert (status, headers["retry-after"]) == (503, "1")


async def test_a_successor_of_the_same_name_is_not_removed_with_its_predecessor() -> None:
    made = ingress()
    first, second = AgentMount(("late",)), AgentMount(("late",))
    made.add(first)
    second.app = App("second")
    made.add(second)
    made.remove(first)
    assert (await ask(made, "/agents/late/mcp"))[2].startswith("second ")


async def test_requests_under_way_may_end_when_their_agent_leaves_and_are_cancelled_after_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pallas.surfaces.ingress.GRACE", 0.05)
    place = AgentMount(("a",))
    reached, may_end = asyncio.Event(), asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        reached.set()
        await (may_end.wait() if scope["path"] == "/quick" else asyncio.Event().wait())
        await App("a")(scope, receive, send)

    place.app = app
    made = Ingress(App("fleet"))
    made.add(place)
    quick = asyncio.create_task(ask(made, "/agents/a/quick"))
    stuck = asyncio.create_task(ask(made, "/agents/a/stuck"))
    await reached.wait()
    may_end.set()
    await place.leave()
    assert (await quick)[0] == 200
    assert stuck.cancelled()


@pytest.mark.parametrize(("path", "seen"), [("/mcp/", "/mcp"), ("/mcp", "/mcp"), ("/mcp//", "/mcp//")])
async def test_a_slash_at_the_end_is_no_redirect(path: str, seen: str) -> None:
    assert (await ask(slashless(App("a")), path, "POST"))[2] == f"a POST {seen} {seen}"
