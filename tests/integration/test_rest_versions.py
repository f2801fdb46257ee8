"""A change or a delete that was meant for an older version of a resource is refused."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from support.offline import offline_project
from support.served import Served, served

TOKEN = "a-token-for-the-api-of-this-test-fleet"
SCRIPT = "rules: [{when: {last: user}, say: hi}]"
MADE: dict[str, dict[str, Any]] = {
    "agents": {"description": "one"},
    "llms": {"type": "generic", "model": "m", "url": "http://127.0.0.1:9/v1", "description": "one"},
    "projects": {"description": "one"},
    "secrets": {"data": {"key": "one"}},
}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("versions")
    project = offline_project(root / "p", {"boss": None}, SCRIPT, top={"bind": "127.0.0.1"})
    environment = {
        "PALLAS_DATABASE_URL": f"sqlite:///{root}/ledger.sqlite3",
        "PALLAS_API_TOKEN": TOKEN,
        "PALLAS_SECRET_KEY": "c2VjcmV0IGtleSBvZiB0aGUgdGVzdHMgb2YgdmVyc2k=",
    }
    with served(project, **environment) as running:
        yield running


@asynccontextmanager
async def client(fleet: Served) -> AsyncIterator[httpx2.AsyncClient]:
    await fleet.says("running")
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(
        base_url=f"{fleet.registry}/api/v1", headers=headers, trust_env=False, timeout=60
    ) as http:
        yield http


def change(kind: str, text: str) -> dict[str, Any]:
    """Another description, or another value of a secret."""
    return {"data": {"key": text}} if kind == "secrets" else {"description": text}


@pytest.mark.parametrize("kind", MADE)
async def test_a_stale_version_is_refused_with_the_current_one(fleet: Served, kind: str) -> None:
    # AG-1
    async with client(fleet) as http:
        made = await http.post(f"/{kind}", json={"name": "shared", **MADE[kind]})
        assert made.status_code == 201, made.text
        mine = made.json()
        theirs = await http.put(f"/{kind}/shared", json={**change(kind, "theirs"), "version": 1})
        assert (theirs.status_code, theirs.json()["version"]) == (200, 2)

        def refused(answer: httpx2.Response) -> None:
            assert answer.status_code == 409, answer.text
            data = answer.json()["data"]
            assert (data["reason"], data["key"], data["version"]) == ("conflict", "version", 2)
            assert "version 2" in answer.json()["error"]

        for method in ("PUT", "PATCH"):
            refused(await http.request(method, f"/{kind}/shared", json={**mine, **change(kind, "mine")}))
            refused(await http.request(method, f"/{kind}/shared", json={"version": 1}))
            refused(await http.request(method, f"/{kind}/shared", json={"version": 7}))
        refused(await http.delete(f"/{kind}/shared", params={"version": 1}))
        now = (await http.get(f"/{kind}/shared")).json()
        assert now == theirs.json()

        # Without a version, and with the current one, it is done.
        last = await http.patch(f"/{kind}/shared", json={**change(kind, "last")})
        assert last.json()["version"] == 3
        again = await http.put(f"/{kind}/shared", json={**last.json(), **change(kind, "again")})
        assert again.json()["version"] == 4
        for wrong in ("four", "1.5", True, 0):
            answer = await http.put(f"/{kind}/shared", json={"version": wrong})
            assert (answer.status_code, answer.json()["data"]["key"]) == (400, "version")
        assert (await http.delete(f"/{kind}/shared", params={"version": "x"})).status_code == 400
        assert (await http.delete(f"/{kind}/shared", params={"version": 4})).status_code == 204


async def test_of_changes_of_one_version_at_one_moment_one_is_made(fleet: Served) -> None:
    # AG-1
    async with client(fleet) as http:
        await http.post("/projects", json={"name": "raced"})
        changes = (http.put("/projects/raced", json={"description": str(n), "version": 1}) for n in range(8))
        answers = await asyncio.gather(*changes)
        assert sorted(each.status_code for each in answers) == [200] + 7 * [409]
        (made,) = (each.json() for each in answers if each.status_code == 200)
        assert (await http.get("/projects/raced")).json() == made
