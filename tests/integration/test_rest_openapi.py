"""The OpenAPI document, and the API asked everything that it allows and much that it does not."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from support.rest import Api, api

from pallas.surfaces.rest.endpoints import ENDPOINTS
from pallas.surfaces.rest.rest_app import document_of, rest_app

CONFIG = schemathesis.Config.from_dict(
    {
        "seed": 1,
        "generation": {"deterministic": True, "max-examples": 3, "database": "none", "mode": "all"},
        "phases": {"stateful": {"enabled": False}},
        "checks": {
            # What is well formed may still name something that is not there, or may not be reached.
            "positive_data_acceptance": {"enabled": False},
        },
    }
)
# Cases are made when the test runs: each worker would make those of all operations when it collects.
schema = schemathesis.pytest.from_fixture("operations")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    nothing = cast(Any, SimpleNamespace(kernel=None, ledger=None, threads=None, catalog=None, grants=None))
    return document_of(rest_app(nothing))


@pytest.fixture(params=sorted({each.path for each in ENDPOINTS}))
def operations(request: pytest.FixtureRequest, document: dict[str, Any]) -> Any:
    """The document with one path only: a filter of a schema in a fixture is not heeded."""
    one = {request.param: document["paths"][request.param]}
    return schemathesis.openapi.from_dict({**document, "paths": one}, config=CONFIG)


@pytest.fixture(scope="module")
def connection() -> Iterator[requests.Session]:
    """One connection for all that is asked."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The API in a loop of a thread of its own: who asks here waits for each answer."""
    started: list[Api] = []
    ready, over = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve(folder: Path) -> None:
        loops.append(asyncio.get_running_loop())
        async with api(folder) as made:
            started.append(made)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve(tmp_path_factory.mktemp("openapi"))))
    thread.start()
    assert ready.wait(30)
    yield started[0]
    loops[0].call_soon_threadsafe(over.set)
    thread.join(30)


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_whatever_is_asked_is_answered_as_the_document_says(
    case: schemathesis.Case, served: Api, connection: requests.Session
) -> None:
    case.call_and_validate(base_url=served.url, timeout=60, session=connection)


def test_the_document_has_every_endpoint_and_no_other(document: dict[str, Any]) -> None:
    found = {
        (method.upper(), path) for path, operations in document["paths"].items() for method in operations
    }
    assert found == {(each.method, each.path) for each in ENDPOINTS}
    assert document["servers"] == [{"url": "/api/v1"}]
    names = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(names)) == len(names)
    assert "HTTPValidationError" not in str(document)


def test_the_document_is_served(document: dict[str, Any], served: Api) -> None:
    import httpx2

    answer = httpx2.get(f"{served.url}/openapi.json", trust_env=False, timeout=60)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == document
