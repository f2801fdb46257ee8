"""An unknown key of a body is answered with the keys that there are, the nearest first."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from support.control import serving
from support.rest import api

from pallas.model import FleetPort, operations_of

LOOSE = {"/agents/{name}/chat", "/runs/{id}/fork"}
"""Other keys of these bodies are parameters for the model's provider (``extra``)."""


def bodies(document: dict[str, Any]) -> list[tuple[str, str, tuple[str, ...]]]:
    """The method and path of each operation with a JSON body, and the body's keys."""
    found = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = content.get("schema", {})
            if name := schema.get("$ref", "").rpartition("/")[2]:
                schema = document["components"]["schemas"][name]
            if keys := tuple(schema.get("properties", ())):
                found.append((method.upper(), path, keys))
    return found


async def test_every_body_of_the_rest_api_names_the_keys_that_it_has(tmp_path: Path) -> None:
    async with api(tmp_path / "p") as served, served.client() as client:
        thread = (await client.post("/threads", json={"title": "t"})).json().get("id", "x")
        document = (await client.get("/openapi.json")).json()
        strict = [each for each in bodies(document) if not each[1].endswith(tuple(LOOSE))]
        assert len(strict) >= 9
        for method, path, keys in strict:
            place = path.replace("{id}", thread if path.startswith("/threads") else "x")
            key = max(keys, key=len)
            wrong = f"{key}x"
            place = place.replace("{name}", "echo")
            named = {"name": "one"} if "name" in keys and method == "POST" else {}
            answer = await client.request(method, place, json={wrong: "planted"} | named)
            said = answer.json()
            assert answer.status_code == 400, (method, path, said)
            assert said["data"]["key"] == wrong
            assert said["error"].startswith(f"{wrong}: there is no such key; did you mean {key}"), (
                path,
                said,
            )
            assert "planted" not in answer.text
            far = await client.request(method, place, json={"qqqq": 1} | named)
            assert far.json()["error"].startswith("qqqq: there is no such key; known: "), (path, far.text)
            assert key in far.json()["error"]


async def test_a_misspelt_key_inside_a_body_is_told_and_not_the_one_that_lacks(tmp_path: Path) -> None:
    async with api(tmp_path / "p") as served, served.client() as client:
        body = {"message": "x", "images": [{"data": "eA==", "mimeTyp": "image/png"}]}
        said = (await client.post("/agents/echo/chat", json=body)).json()
    assert said["error"].startswith(
        "images.0.mimeTyp: there is no such key; did you mean mimeType; known: data"
    )


BODIES = [
    (each.name, each.http_method, each.path, tuple(p.wire_name for p in each.parameters if p.place == "body"))
    for each in operations_of(FleetPort)
    if any(parameter.place == "body" for parameter in each.parameters)
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control() -> AsyncIterator[httpx2.AsyncClient]:
    async with serving() as served, served.client() as client:
        yield client


@pytest.mark.parametrize(("name", "method", "path", "keys"), BODIES, ids=[each[0] for each in BODIES])
@pytest.mark.asyncio(loop_scope="module")
async def test_every_body_of_the_control_api_names_the_keys_that_it_has(
    control: httpx2.AsyncClient, name: str, method: str, path: str, keys: tuple[str, ...]
) -> None:
    wrong = f"{max(keys, key=len)}x"
    place = re.sub(r"\{(\w+)\}", "1", re.sub(r"\{(agent|name)\}", "concierge", path))
    answer = await control.request(method, place, json={wrong: "planted"})
    assert answer.status_code == 400, answer.text
    assert (
        f"{wrong}: there is no such key; did you mean {wrong[:-1]}; known: {', '.join(keys)}" in answer.text
    )
    assert "planted" not in answer.text
