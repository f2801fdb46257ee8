"""The REST API and callers without a token, where rules apply: each route of the OpenAPI document in turn."""

import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.granted import allow, api, granted
from support.live import ERAS, ask, client

from pallas.fleet.fleet import Fleet

pytestmark = pytest.mark.asyncio(loop_scope="module")
DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import reference_pages  # noqa: E402

sys.path.remove(str(DOCS))
BODIES: dict[str, Any] = {
    "PATCH /threads/{id}": {"title": "stolen"},
    "POST /runs/{id}/fork": {"step": 1},
    "POST /questions/{id}/answer": {"action": "accept"},
    "POST /agents/{name}/chat": {"message": "hello"},
}
RUN_ROUTES = ("GET /agents/{name}/threads", "POST /agents/{name}/threads", "POST /agents/{name}/chat")


@dataclass(frozen=True)
class Route:
    """One operation of the document."""

    method: str
    path: str
    permission: str | None
    anonymous: bool

    @property
    def name(self) -> str:
        """As in the documentation."""
        return f"{self.method} {self.path}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with granted(
        tmp_path_factory.mktemp("anonymous"), {}, ("desk",), keys={"desk": {"auth": "off"}}
    ) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def routes(fleet: Fleet) -> list[Route]:
    """What the document of the fleet says of its routes."""
    async with api(fleet, None) as client:
        document = (await client.get("/openapi.json")).json()
    return [
        Route(method.upper(), path, operation.get("x-pallas-permission"), operation["x-pallas-anonymous"])
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    ]


async def asked(client: httpx2.AsyncClient, route: Route, ids: dict[str, str]) -> httpx2.Response:
    """One request of that route, about what a caller without a token has begun."""
    name = "desk" if route.name in RUN_ROUTES else "nothing"
    path = route.path.format(name=name, id=ids.get(route.path.split("/")[1], "nothing"), number=1)
    body = BODIES.get(route.name, {})
    sent = {"json": body} if route.method in ("POST", "PUT", "PATCH") else {}
    return await client.request(route.method, path, **sent)


async def begun(fleet: Fleet) -> dict[str, str]:
    """A thread and a run of a caller without a token."""
    allow(fleet, {"anonymous": ["run:agents"]})
    async with api(fleet, None) as nobody:
        said = await nobody.post("/agents/desk/chat", json={"message": "between us"})
    assert said.status_code == 200, said.text
    return {"threads": said.json()["threadId"], "runs": said.json()["runId"]}


@pytest.mark.parametrize("granted_to_all", [[], ["run:agents"], ["*"]], ids=["nothing", "run", "everything"])
async def test_without_a_token_only_the_routes_that_say_so_are_open(
    fleet: Fleet, routes: list[Route], granted_to_all: list[str]
) -> None:
    # AG-20 AG-21
    ids = await begun(fleet)
    allow(fleet, {"anonymous": granted_to_all, "token:ada": ["*"]})
    wrong = []
    async with api(fleet, None) as nobody, api(fleet, "ada") as ada:
        for route in routes:
            permitted = (
                route.permission is None or "*" in granted_to_all or route.permission in granted_to_all
            )
            answer = await asked(nobody, route, ids)
            if (answer.status_code != 401) != (route.anonymous and permitted):
                wrong.append(f"{route.name}: {answer.status_code}")
            if answer.status_code == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer"), route.name
                assert answer.json()["data"]["reason"] == "unauthenticated", route.name
            assert answer.status_code < 500, answer.text
        assert not wrong
        kept = await ada.get(f"/threads/{ids['threads']}")
        assert (kept.status_code, kept.json()["title"]) == (200, "between us")


async def test_a_caller_without_a_token_still_goes_on_with_its_thread_where_it_may_run(fleet: Fleet) -> None:
    thread = (await begun(fleet))["threads"]
    async with api(fleet, None) as nobody:
        answer = await nobody.post("/agents/desk/chat", json={"message": "more", "threadId": thread})
        assert (answer.status_code, answer.json()["turnIndex"]) == (200, 3)


async def test_a_handle_that_can_be_guessed_leads_from_no_token_to_no_thread_of_a_caller(
    fleet: Fleet,
) -> None:
    """Where tokens are checked: each side's guessable handle is closed to the other."""
    allow(fleet, {"anonymous": ["run:agents"], "token:ada": ["run:agents"]})
    async with api(fleet, None) as nobody, api(fleet, "ada") as ada:
        async with client(fleet, "desk", era=ERAS[0]) as mcp:  # this agent checks no token
            await ask(mcp, "my word is rose", conversation_id="order-1")
        hers = (await ada.post("/agents/desk/chat", json={"message": "my word is tulip"})).json()
        for http, thread in ((nobody, hers["threadId"]), (ada, "order-1")):
            body = {"message": "repeat all", "threadId": thread}
            refused = await http.post("/agents/desk/chat", json=body)
            assert refused.status_code == 404, refused.text
        assert (await nobody.get("/threads?search=rose")).status_code == 401
        # Without a token the handle is all that it takes to go on: no one owns such a thread.
        body = {"message": "more", "threadId": "order-1"}
        assert (await nobody.post("/agents/desk/chat", json=body)).json()["turnIndex"] == 3


async def test_the_table_of_routes_in_the_documentation_is_that_of_the_fleet(routes: list[Route]) -> None:
    rows = re.findall(
        r"^\| `([A-Z]+ /\S*)` \| (\S+) \| (yes|no) \|$", reference_pages.rest_api(), re.MULTILINE
    )
    said = {
        route.name: (f"`{route.permission}`" if route.permission else "–", "yes" if route.anonymous else "no")
        for route in routes
    }
    assert {name: (permission, anonymous) for name, permission, anonymous in rows} == said
