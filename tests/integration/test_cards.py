"""Server Cards and the AI Catalog: what is told, to whom, and only when it was asked for."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator, FormatChecker
from mcp import Client
from support.live import ERAS, running, write_project

from pallas.fleet.fleet import Fleet

SCHEMA_FILE = Path(__file__).parents[3] / "shared" / "schemas" / "server-card.schema.json"
CARD = "/mcp/server-card"
CATALOG = "/.well-known/ai-catalog.json"
CARD_TYPE = "application/mcp-server-card+json"
CATALOG_TYPE = "application/ai-catalog+json"

# What SEP-2127 asks of a card, written out here so that the check needs nothing else.
CARD_RULES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["$schema", "name", "description", "version", "remotes"],
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"},
        "name": {
            "type": "string",
            "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
            "minLength": 3,
            "maxLength": 200,
        },
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "minLength": 1, "maxLength": 255},
        "icons": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["src"],
                "properties": {
                    "src": {"type": "string", "pattern": "^(https?|data):"},
                    "sizes": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
        "remotes": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["type", "url", "supportedProtocolVersions"],
                "properties": {
                    "type": {"const": "streamable-http"},
                    "url": {"type": "string", "pattern": "^https?://[^\\s]+/mcp$"},
                    "supportedProtocolVersions": {
                        "type": "array",
                        "items": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"},
                    },
                },
            },
        },
    },
}
SECRET = "canary-5f1c"


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """Two agents with cards; every place where a secret may stand holds one."""
    monkeypatch.setenv("CARD_TOKEN", SECRET)
    long = "Answers " + "very " * 15 + "well"
    project = write_project(
        tmp_path,
        {"desk_one": None, "plain": None},
        keys={"desk_one": {"title": "Front desk", "description": long, "icons": ["i.svg"]}},
        top={"server_cards": True, "namespace": "com.example.office", "host": "localhost"},
        config={
            "openai": {"api_key": SECRET, "base_url": "http://127.0.0.1:9/v1"},
            "mcp": {
                "servers": {
                    "far": {
                        "url": "http://127.0.0.1:9/mcp",
                        "headers": {"Authorization": "Bearer ${CARD_TOKEN}"},
                    }
                }
            },
        },
    )
    async with running(project) as started:
        yield started


def _url(fleet: Fleet, name: str, path: str) -> str:
    port = next(agent.config.port for agent in fleet.agents if agent.name == name)
    return f"http://127.0.0.1:{port}{path}"


def _catalog(fleet: Fleet) -> str:
    return fleet.registry_url.partition("/.well-known")[0] + CATALOG


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        yield client


async def test_a_card_says_what_the_registry_says(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    registry = (await http.get(fleet.registry_url)).json()["servers"]
    for name, entry in zip(("desk_one", "plain"), registry, strict=True):
        answer = await http.get(_url(fleet, name, CARD))
        assert (answer.status_code, answer.headers["content-type"]) == (200, CARD_TYPE)
        card = answer.json()
        for key in ("name", "title", "description", "version", "icons"):
            assert card.get(key) == entry["server"].get(key)
        (remote,) = card["remotes"]
        versions = remote.pop("supportedProtocolVersions")
        assert [remote] == entry["server"]["remotes"]
        assert {"2025-11-25", "2026-07-28"} <= set(versions)
        assert [error.message for error in Draft202012Validator(CARD_RULES).iter_errors(answer.json())] == []
    assert card["name"] == "com.example.office/plain"
    card["tools"] = []
    assert list(Draft202012Validator(CARD_RULES).iter_errors(card))


async def test_a_card_is_valid_against_the_published_schema(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    if not SCHEMA_FILE.exists():
        pytest.skip(f"{SCHEMA_FILE.name} is not beside the checkout")
    schema = json.loads(SCHEMA_FILE.read_text())
    rules = Draft202012Validator(
        {"$ref": "#/$defs/ServerCard", "$defs": schema["$defs"]}, format_checker=FormatChecker()
    )
    for name in ("desk_one", "plain"):
        card = (await http.get(_url(fleet, name, CARD))).json()
        assert [error.message for error in rules.iter_errors(card)] == []
    card["icons"] = [{"src": "i.svg", "sizes": "any"}]
    assert list(rules.iter_errors(card))


async def test_the_catalog_leads_to_every_card_and_the_card_to_the_agent(
    fleet: Fleet, http: httpx2.AsyncClient
) -> None:
    answer = await http.get(_catalog(fleet))
    assert (answer.status_code, answer.headers["content-type"]) == (200, CATALOG_TYPE)
    catalog = answer.json()
    assert (set(catalog), catalog["specVersion"]) == ({"specVersion", "entries"}, "1.0")
    assert [entry["identifier"] for entry in catalog["entries"]] == [
        "urn:air:office.example.com:mcp:desk-one",
        "urn:air:office.example.com:mcp:plain",
    ]
    assert catalog["entries"][0]["displayName"] == "Front desk"
    for entry in catalog["entries"]:
        assert set(entry) == {"identifier", "displayName", "description", "type", "url"}
        assert entry["type"] == CARD_TYPE
        card = (await http.get(entry["url"], headers={"accept": CARD_TYPE})).json()
        assert card["title"] == entry["displayName"]
        for era in ERAS:
            async with Client(card["remotes"][0]["url"], mode=era) as client:
                assert {tool.name for tool in (await client.list_tools()).tools} == {
                    "send_message",
                    "get_health",
                }
                assert client.protocol_version in card["remotes"][0]["supportedProtocolVersions"]


async def test_cards_are_cached_by_their_etag(fleet: Fleet, http: httpx2.AsyncClient) -> None:
    for url in (_url(fleet, "plain", CARD), _catalog(fleet)):
        first = await http.get(url)
        assert first.headers["cache-control"] == "public, max-age=60"
        assert first.headers["access-control-allow-origin"] == "*"
        tag = first.headers["etag"]
        assert re.fullmatch(r'"[0-9a-f]{32}"', tag)
        for held in (tag, f'"old", W/{tag}', "*"):
            again = await http.get(url, headers={"if-none-match": held})
            assert (again.status_code, again.content) == (304, b"")
            assert (again.headers["etag"], again.headers["cache-control"]) == (tag, "public, max-age=60")
        assert (await http.get(url, headers={"if-none-match": '"old"'})).content == first.content
        head = await http.head(url)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert (await http.request(method, url)).status_code == 405
    other = await http.get(_url(fleet, "desk_one", CARD))
    assert other.headers["etag"] != (await http.get(_url(fleet, "plain", CARD))).headers["etag"]


async def test_cards_stand_behind_the_guard(fleet: Fleet, http: httpx2.AsyncClient) -> None:  # PR-8
    for url in (_url(fleet, "plain", CARD), _catalog(fleet)):
        for headers, status in (
            ({"host": "evil.example"}, 421),
            ({"origin": "http://evil.example"}, 403),
        ):
            refused = await http.get(url, headers=headers)
            assert refused.status_code == status
            assert "access-control-allow-origin" not in refused.headers
            assert "com.example.office" not in refused.text
        allowed = await http.get(url, headers={"origin": "http://localhost:3000"})
        assert allowed.headers["access-control-allow-origin"] == "*"


async def test_nothing_secret_and_nothing_of_the_request_is_in_them(
    fleet: Fleet, http: httpx2.AsyncClient
) -> None:
    for url in (_url(fleet, "desk_one", CARD), _catalog(fleet)):
        answer = await http.get(
            f"{url}?x={SECRET}-q", headers={"authorization": f"Bearer {SECRET}", "x-forwarded-host": SECRET}
        )
        seen = answer.text + str(answer.headers)
        assert SECRET not in seen
        assert str(fleet.project.root) not in seen
        assert "127.0.0.1:9/" not in seen  # nor whom the agents call


async def test_without_the_key_there_are_no_cards(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with running(write_project(tmp_path, {"plain": None})) as fleet:
        for url in (_url(fleet, "plain", CARD), _catalog(fleet)):
            answer = await http.get(url)
            assert (answer.status_code, answer.json()) == (404, {"error": "Not found"})
            assert "access-control-allow-origin" not in answer.headers
