"""The registry's port: catalogue, liveness, readiness, metrics, and who may ask."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from jsonschema import Draft7Validator, FormatChecker
from prometheus_client.parser import text_string_to_metric_families
from support.fake_downstreams import serving

from pallas.config.models import AgentConfig, Capabilities, Icon, Project
from pallas.health.preflight import ProviderReport
from pallas.model import (
    AgentSnapshot,
    AgentState,
    FleetSnapshot,
    FleetState,
    Health,
    HealthStatus,
    RunFinished,
)
from pallas.surfaces.host_guard import HostOriginGuard, allowed_hosts_of
from pallas.surfaces.metrics import Metrics
from pallas.surfaces.registry import catalogue, registry_app

WELL_KNOWN = "/.well-known/mcp/server.json"
OFFICIAL = "io.modelcontextprotocol.registry/official"
PUBLISHER = "io.modelcontextprotocol.registry/publisher-provided"
NAME = re.compile(r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$")
SCHEMA_FILE = Path(__file__).parents[3] / "shared" / "schemas" / "server.schema.json"

CAPABILITIES = Capabilities(vision=False, context_window=200_000, max_output_tokens=32_000)
SINCE = datetime.fromisoformat("2026-03-12T10:00:00+00:00").timestamp()


def _config(name: str, port: int, title: str, description: str, **more: Any) -> AgentConfig:
    return AgentConfig(name=name, port=port, title=title, description=description, module="m", **more)


def _project(*agents: AgentConfig, **more: Any) -> Project:
    facts = {
        "host": "puck.incus",
        "namespace": "ca.helu.ouranos",
        "registry_port": 23030,
        "model": "qwen3-8b-q5",
    }
    named = {agent.name: agent for agent in agents}
    return Project(Path("/p"), Path("/p/agents.yaml"), "p", named, **{**facts, **more})


def _agent(config: AgentConfig, **more: Any) -> AgentSnapshot:
    facts: dict[str, Any] = {
        "name": config.name,
        "title": config.title,
        "description": config.description,
        "state": AgentState.READY,
        "since": SINCE,
        "health": Health(HealthStatus.OK),
        "port": config.port,
        "url": f"http://127.0.0.1:{config.port}/mcp",
    }
    return AgentSnapshot(**{**facts, **more})


RESEARCH = _config(
    "pallas_research",
    23031,
    "Research Agent",
    "Web search via Argos and knowledge graph via Neo4j",
    icons=(Icon("https://daedalus.ouranos.helu.ca/icons/research.svg"),),
    model_capabilities=CAPABILITIES,
)
INFRA = _config(
    "pallas-infra", 23032, "Engineering Agent", "Shell access via Kernos", model_capabilities=CAPABILITIES
)


@dataclass
class Registry:
    """A registry that is served, over a fleet that a test may change."""

    project: Project
    agents: tuple[AgentSnapshot, ...] = ()
    state: FleetState = FleetState.RUNNING
    reports: tuple[ProviderReport, ...] = ()
    http: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(trust_env=False, timeout=60))
    metrics: Metrics = field(init=False)

    def __post_init__(self) -> None:
        self.metrics = Metrics(self.snapshot)

    def snapshot(self) -> FleetSnapshot:
        """The fleet as it is now."""
        return FleetSnapshot("p", self.state, SINCE, "", self.agents)

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        """GET a path of the registry."""
        return await self.http.get(path, headers=headers)

    async def servers(self) -> list[dict[str, Any]]:
        """The entries of the catalogue."""
        entries: list[dict[str, Any]] = (await self.get(WELL_KNOWN)).json()["servers"]
        return entries


@pytest.fixture
async def registry() -> AsyncIterator[Registry]:
    registry = Registry(_project(RESEARCH, INFRA), (_agent(RESEARCH), _agent(INFRA)))
    app = registry_app(
        lambda: registry.project,
        registry.snapshot,
        providers=lambda: registry.reports,
        metrics=registry.metrics,
    )
    guarded = HostOriginGuard(app, allowed_hosts_of(registry.project, "0.0.0.0"))
    async with serving(guarded) as origin:
        registry.http = httpx2.AsyncClient(base_url=origin, trust_env=False, timeout=60)
        async with registry.http:
            yield registry


async def test_the_catalogue_is_plain_json_for_everyone(registry: Registry) -> None:  # PI-1
    answer = await registry.get(WELL_KNOWN)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    again = await registry.get("/v0.1/servers")
    assert again.content == answer.content
    assert answer.json()["metadata"] == {"count": 2}
    rpc = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    for path in (WELL_KNOWN, "/v0.1/servers", "/healthz", "/readyz", "/metrics"):
        assert (await registry.http.post(path, json=rpc)).status_code == 405
    assert (await registry.http.post("/mcp", json=rpc)).status_code == 404


async def test_the_seeds_own_example_comes_out(registry: Registry) -> None:  # PI-2, PI-3, PI-4
    capabilities = {
        "model": "qwen3-8b-q5",
        "vision": False,
        "context_window": 200000,
        "max_output_tokens": 32000,
    }
    first, second = await registry.servers()
    assert first == {
        "server": {
            "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
            "name": "ca.helu.ouranos/pallas-research",
            "title": "Research Agent",
            "description": "Web search via Argos and knowledge graph via Neo4j",
            "version": "1.0.0",
            "icons": [{"src": "https://daedalus.ouranos.helu.ca/icons/research.svg", "sizes": ["any"]}],
            "remotes": [{"type": "streamable-http", "url": "http://puck.incus:23031/mcp"}],
            "capabilities": capabilities,
            "_meta": {
                PUBLISHER: {
                    "pallas": capabilities,
                    "state": "ready",
                    "status": "ready",
                    "kind": "llm",
                }
            },
        },
        "_meta": {OFFICIAL: {"status": "active", "updatedAt": "2026-03-12T10:00:00Z", "isLatest": True}},
    }
    assert second["server"]["name"] == "ca.helu.ouranos/pallas-infra"
    assert "icons" not in second["server"]


async def test_capabilities_are_there_only_when_they_are_configured(registry: Registry) -> None:  # PI-4
    bare = replace(INFRA, model_capabilities=None)
    registry.project = _project(RESEARCH, bare)
    registry.agents = (_agent(RESEARCH, model="gpt-4.1"), _agent(bare, model="gpt-4.1"))
    with_them, without = (entry["server"] for entry in await registry.servers())
    assert with_them["capabilities"]["model"] == "gpt-4.1"
    assert with_them["_meta"][PUBLISHER]["pallas"] == with_them["capabilities"]
    assert "capabilities" not in without
    assert "pallas" not in without["_meta"][PUBLISHER]


async def test_agents_that_come_and_go_are_seen_with_the_next_request(registry: Registry) -> None:  # PI-5
    late = _config("late", 23040, "Late", "Came later")
    registry.project = _project(RESEARCH, INFRA, late)
    registry.agents = (*registry.agents, _agent(late, state=AgentState.CONNECTING))
    *_, added = await registry.servers()
    assert added["server"]["name"] == "ca.helu.ouranos/late"
    assert added["server"]["_meta"][PUBLISHER]["state"] == "connecting"
    registry.agents = registry.agents[:2]
    assert len(await registry.servers()) == 2
    registry.agents = (_agent(RESEARCH, state=AgentState.STOPPED), _agent(INFRA, state=AgentState.ERROR))
    (failed,) = await registry.servers()  # its port still answers get_health
    assert failed["server"]["_meta"][PUBLISHER]["state"] == "error"


async def test_an_entry_says_whether_the_agent_can_be_given_something_to_do(registry: Registry) -> None:
    # DR-31
    full = _agent(RESEARCH, full=True, kind="worker", capabilities=("search", "reading"))
    registry.agents = (full, _agent(INFRA, state=AgentState.BACKOFF))
    busy, down = [entry["server"]["_meta"][PUBLISHER] for entry in await registry.servers()]
    assert (busy["state"], busy["status"], busy["kind"]) == ("ready", "busy", "worker")
    assert busy["agentCapabilities"] == ["search", "reading"]
    assert (down["state"], down["status"]) == ("backoff", "unavailable")


async def test_an_entry_changes_its_date_only_when_the_agent_changes(registry: Registry) -> None:
    before = (await registry.get(WELL_KNOWN)).content
    await asyncio.sleep(0)
    assert (await registry.get(WELL_KNOWN)).content == before
    registry.agents = (_agent(RESEARCH, since=SINCE + 60),)
    (entry,) = await registry.servers()
    assert entry["_meta"][OFFICIAL]["updatedAt"] == "2026-03-12T10:01:00Z"


def test_icons_are_published_with_an_absolute_address() -> None:  # PI-6
    icons = (
        "icons/a b.svg",
        "/i.png",
        "//cdn.example/x.png",
        "https://x/y.png",
        "javascript:alert(1)",
        "z" * 300,
    )
    agent = replace(RESEARCH, icons=tuple(Icon(src, ("48x48",)) for src in icons))
    (entry,) = catalogue(_project(agent), FleetSnapshot("p", FleetState.RUNNING, 0, "", (_agent(agent),)))[
        "servers"
    ]
    assert [icon["src"] for icon in entry["server"]["icons"]] == [
        "http://puck.incus:23030/icons/a%20b.svg",
        "http://puck.incus:23030/i.png",
        "http://cdn.example/x.png",
        "https://x/y.png",
    ]
    assert {tuple(icon["sizes"]) for icon in entry["server"]["icons"]} == {("48x48",)}


def _awkward() -> dict[str, Any]:
    """A catalogue of agents whose texts are as bad as they get."""
    agents = (
        _config("a_b", 1, "", ""),
        _config(
            "long", 2, "T" * 300, "word " * 100, icons=(Icon("i.svg", ()), Icon("x.png", ("48x48", "any")))
        ),
        _config(
            "evil", 3, "\x1b[2Jtitle\u202e", "two\nlines\x00", model_capabilities=Capabilities(vision=True)
        ),
    )
    project = _project(*agents, namespace="local.pallas", host="2001:db8::1", model="")
    return catalogue(project, FleetSnapshot("p", FleetState.RUNNING, 0, "", tuple(map(_agent, agents))))


def test_every_entry_keeps_the_rules_whatever_was_configured() -> None:  # PI-2, PI-3
    for entry in _awkward()["servers"]:
        server = entry["server"]
        assert NAME.fullmatch(server["name"])
        assert server["name"].startswith("local.pallas/")
        assert 1 <= len(server["title"]) <= 100
        assert 1 <= len(server["description"]) <= 100
        assert server["remotes"][0]["url"].startswith("http://[2001:db8::1]:")
    first, _, evil = (entry["server"] for entry in _awkward()["servers"])
    assert (first["name"], first["title"], first["description"]) == ("local.pallas/a-b", "a_b", "a_b")
    assert evil["description"] == "two"
    assert "\x1b" not in evil["title"]


# What the registry API (v0.1) allows around an entry; written out here, so that nothing else is needed.
OFFICIAL_RULES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["status"],
    "properties": {
        "status": {"enum": ["active", "deprecated", "deleted"]},
        "statusMessage": {"type": "string", "maxLength": 500},
        "statusChangedAt": {"type": "string", "format": "date-time"},
        "publishedAt": {"type": "string", "format": "date-time"},
        "updatedAt": {"type": "string", "format": "date-time"},
        "isLatest": {"type": "boolean"},
    },
}
LIST_RULES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["servers"],
    "properties": {
        "servers": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["server"],
                "properties": {
                    "server": {"type": "object"},
                    "_meta": {"type": "object", "properties": {OFFICIAL: OFFICIAL_RULES}},
                },
            },
        },
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"nextCursor": {"type": "string"}, "count": {"type": "integer"}},
        },
    },
}


async def test_the_body_is_valid_against_the_published_schema(registry: Registry) -> None:  # PI-3
    if not SCHEMA_FILE.exists():
        pytest.skip(f"{SCHEMA_FILE.name} is not beside the checkout")
    schema = json.loads(SCHEMA_FILE.read_text())
    validator = Draft7Validator(schema, format_checker=FormatChecker())
    published = set(schema["definitions"]["ServerDetail"]["properties"])
    bodies = [(await registry.get(path)).json() for path in (WELL_KNOWN, "/v0.1/servers")]
    for body in [*bodies, _awkward()]:
        assert body["servers"]
        for entry in body["servers"]:
            assert [error.message for error in validator.iter_errors(entry["server"])] == []
            # The one key that the schema does not know; the contract of Pallas has it (PI-4).
            assert set(entry["server"]) - published <= {"capabilities"}
    # The seed's own icon is what the schema refuses: without this the loop above could not fail.
    bodies[0]["servers"][0]["server"]["icons"][0]["sizes"] = "any"
    assert list(validator.iter_errors(bodies[0]["servers"][0]["server"]))


async def test_the_body_has_the_shape_of_a_registrys_list(registry: Registry) -> None:  # PI-3
    rules = Draft7Validator(LIST_RULES, format_checker=FormatChecker())
    served = [(await registry.get(path)).json() for path in (WELL_KNOWN, "/v0.1/servers")]
    for body in [*served, _awkward()]:
        assert [error.message for error in rules.iter_errors(body)] == []
        assert body["metadata"]["count"] == len(body["servers"])
        for entry in body["servers"]:
            official = entry["_meta"][OFFICIAL]
            assert set(official) == {"status", "updatedAt", "isLatest"}
            assert datetime.fromisoformat(official["updatedAt"]).tzinfo is not None
    served[0]["servers"][0]["_meta"][OFFICIAL]["state"] = "ready"
    assert list(rules.iter_errors(served[0]))


@pytest.mark.parametrize("name", ["ca.helu.ouranos%2Fpallas-research", "ca.helu.ouranos/pallas-research"])
async def test_a_server_and_its_one_version_have_pages_of_their_own(registry: Registry, name: str) -> None:
    # PI-3
    first = (await registry.servers())[0]
    page = f"/v0.1/servers/{name}/versions"
    versions = await registry.get(page)
    assert (versions.status_code, versions.headers["content-type"]) == (200, "application/json")
    assert versions.json() == {"servers": [first], "metadata": {"count": 1}}
    for version in ("latest", "1.0.0"):
        assert (await registry.get(f"{page}/{version}")).json() == first


@pytest.mark.parametrize(
    "path",
    [
        "/v0.1/servers/ca.helu.ouranos%2Fnobody-77/versions",
        "/v0.1/servers/ca.helu.ouranos%2Fnobody-77/versions/latest",
        "/v0.1/servers/ca.helu.ouranos%2Fpallas-research/versions/7.7.7",
        "/v0.1/servers/ca.helu.ouranos%2Fpallas-research/versions/latest/77",
        "/v0.1/servers/77",
        "/nothing-77",
    ],
)
async def test_what_is_not_there_is_404_in_json(registry: Registry, path: str) -> None:
    answer = await registry.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/json")
    assert list(answer.json()) == ["error"]
    assert "77" not in answer.text


async def test_an_agent_that_was_stopped_has_no_version_either(registry: Registry) -> None:  # PI-5
    registry.agents = (_agent(RESEARCH, state=AgentState.STOPPED), _agent(INFRA))
    name = "ca.helu.ouranos%2Fpallas-research"
    assert (await registry.get(f"/v0.1/servers/{name}/versions/latest")).status_code == 404


async def test_every_page_may_be_asked_for_its_head_and_only_be_read(registry: Registry) -> None:  # PI-1
    one = "/v0.1/servers/ca.helu.ouranos%2Fpallas-research/versions"
    for path in (WELL_KNOWN, "/v0.1/servers", one, f"{one}/latest", "/healthz", "/readyz", "/metrics"):
        head, get = await registry.http.head(path), await registry.get(path)
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers["content-type"] == get.headers["content-type"]
        assert int(head.headers["content-length"]) > 0
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            refused = await registry.http.request(method, path)
            assert (refused.status_code, set(refused.headers["allow"].split(", "))) == (405, {"GET", "HEAD"})


async def test_nothing_of_the_request_is_repeated(registry: Registry) -> None:
    answer = await registry.get(
        f"{WELL_KNOWN}?host=canary-77", host="localhost", x_forwarded_host="canary-77"
    )
    assert "canary-77" not in answer.text
    assert "localhost" not in answer.text
    assert "canary-77" not in (await registry.get("/canary-77")).text


async def test_the_registrys_port_is_guarded(registry: Registry) -> None:  # PR-8
    for path in (WELL_KNOWN, "/healthz", "/readyz", "/metrics", "/nothing"):
        assert (await registry.get(path, host="evil.example")).status_code == 421
        assert (await registry.get(path, origin="http://evil.example")).status_code == 403
    for host in ("puck.incus", "PUCK.INCUS.:23030", "localhost:1", "[::1]"):
        assert (await registry.get(WELL_KNOWN, host=host)).status_code == 200


async def test_a_request_without_a_host_is_refused(registry: Registry) -> None:  # PR-8
    url = registry.http.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
    async with asyncio.timeout(30):
        answer = await reader.read()
    writer.close()
    assert b" 421 " in answer.splitlines()[0]


async def test_healthz_tells_what_the_provider_checks_found(registry: Registry) -> None:  # PR-23
    assert (await registry.get("/healthz")).json() == {"status": "ok", "providers": []}
    registry.reports = (
        ProviderReport("anthropic", False, True),
        ProviderReport("openai", True, False, "openai: model 'bad-model' not found"),
    )
    answer = await registry.get("/healthz")
    assert answer.status_code == 200
    assert answer.json()["providers"] == [
        {"provider": "anthropic", "active": False, "ok": True},
        {"provider": "openai", "active": True, "ok": False, "message": "openai: model 'bad-model' not found"},
    ]


@pytest.mark.parametrize(
    ("state", "status", "word"),
    [
        (FleetState.STARTING, 503, "starting"),
        (FleetState.RUNNING, 200, "ready"),
        (FleetState.STOPPING, 503, "draining"),
        (FleetState.STOPPED, 503, "draining"),
        (FleetState.FAILED, 503, "failed"),
    ],
)
async def test_readyz_is_503_unless_the_fleet_runs(
    registry: Registry, state: FleetState, status: int, word: str
) -> None:
    registry.state = state
    answer = await registry.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (status, word)
    assert answer.json()["agents"] == {"pallas_research": "ready", "pallas-infra": "ready"}
    assert (await registry.get("/healthz")).status_code == 200


async def test_metrics_are_prometheus_text(registry: Registry) -> None:  # PR-23
    registry.metrics.observe(RunFinished(run_id="r", agent="pallas-infra", outcome="ok", seconds=0.2))
    answer = await registry.get("/metrics", accept="text/plain;version=abc")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["pallas_runs"].samples[0].labels == {"agent": "pallas-infra", "outcome": "ok"}
    assert len(families["pallas_agent_health"].samples) == 2
