"""Whole fleets that ask callers who they are: served headless, while files change, among themselves."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import yaml
from mcp import Client, MCPError
from mcp.client.auth.utils import extract_resource_metadata_from_www_auth
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp.shared.auth import ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed
from support.guarded import CI, OPS, call, headers
from support.issuer import AUDIENCE, Issuer, SigningKey, issuing
from support.live import ERAS, agent_module, ask, client, write_project
from support.ports import free_ports
from support.recording import recording
from support.waiting import until

from pallas.cli.app import run
from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AuthHop, Fault, FaultType, Notice, ProbeResult, RunStarted
from pallas.model.codec import encode, encode_event
from pallas.surfaces.auth.static_tokens import sha256_of
from pallas_tui.mcp_link import McpLink

ERA = pytest.mark.parametrize("era", ERAS)


@asynccontextmanager
async def headless(root: Path, **more: Any) -> AsyncIterator[Fleet]:
    """A fleet as it is served for real."""
    before, argv = Path.cwd(), sys.argv
    sys.argv = ["pallas"]
    fleet = Fleet(load_project(root, {**os.environ}), **more)
    try:
        await fleet.start()
        yield fleet
    finally:
        await fleet.stop()
        os.chdir(before)
        sys.argv = argv


def guarded(root: Path, agents: dict[str, str | None], **more: Any) -> Path:
    """A project on loopback with a token for ``ci`` and, in ``auth``, what else is asked."""
    tokens = {"ci": {"sha256": sha256_of(CI), "scopes": ["run"]}, "ops": {"sha256": sha256_of(OPS)}}
    auth = {"tokens": tokens, **more.pop("auth", {})}
    top = {"bind": "127.0.0.1", "host": "127.0.0.1", "auth": auth, **more.pop("top", {})}
    return write_project(root, agents, top=top, **more)


def jwt_of(issuer: Issuer) -> dict[str, Any]:
    return {"corp": {"issuer": issuer.issuer, "audience": AUDIENCE, "jwks_url": issuer.url}}


def edit(root: Path, **auth: Any) -> None:
    """Change ``auth:`` of the project's file."""
    path = root / "agents.yaml"
    written = yaml.safe_load(path.read_text("utf-8"))
    written["auth"] |= auth
    path.write_text(yaml.safe_dump(written, sort_keys=False), "utf-8")


async def status(url: str, bearer: str | None = None) -> int:
    """What ``tools/list`` is answered with."""
    lines = headers("tools/list") | ({"authorization": f"Bearer {bearer}"} if bearer else {})
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
        return (await http.post(url, json=call("tools/list"), headers=lines)).status_code


async def answered(url: str, bearer: str, wanted: int) -> None:
    """Until ``tools/list`` is answered so."""
    async with asyncio.timeout(60):
        while True:
            if await status(url, bearer) == wanted:
                return
            await asyncio.sleep(0.05)


@ERA
async def test_a_headless_fleet_asks_on_loopback_too_and_each_agent_by_its_own_rules(
    tmp_path: Path, era: str
) -> None:
    root = guarded(
        tmp_path,
        {"harper": None, "narrow": None, "demo": None},
        keys={"narrow": {"auth": {"tokens": ["ops"]}}, "demo": {"auth": False}},
        auth={"scopes": []},
    )
    async with headless(root) as fleet:
        for name, allowed, refused in (
            ("harper", (CI, OPS), (None,)), ("narrow", (OPS,), (CI, None)), ("demo", (CI, None, "x"), ()),
        ):  # fmt: skip
            for bearer in allowed:
                async with client(fleet, name, era=era, bearer=bearer) as known:
                    assert "hello" in await ask(known, "hello")
            url = next(each.url for each in fleet.agents if each.name == name)
            for bearer in refused:
                assert await status(url, bearer) == 401
        # The registry, readiness and metrics are everyone's, and hold nothing of who may call.
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            for path in ("/.well-known/mcp/server.json", "/healthz", "/readyz", "/metrics"):
                answer = await http.get(f"http://127.0.0.1:{fleet.project.registry_port}{path}")
                assert answer.status_code == 200
                for secret in (CI, OPS, sha256_of(CI), sha256_of(OPS)):
                    assert secret not in answer.text
            assert (
                'pallas_runs_by_caller_total{agent="harper",caller="token:ci",outcome="ok"} 1.0'
                in answer.text
            )


async def test_what_anyone_may_call_is_named_where_others_reach_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    agents: dict[str, str | None] = {"harper": None, "demo": None}
    top = {"bind": "0.0.0.0"}
    root = guarded(tmp_path / "a", agents, keys={"demo": {"auth": False}}, top=top)
    async with headless(root) as fleet:
        told = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
    (line,) = [text for text in told if "there is no inbound authentication" in text]
    assert "authentication for demo;" in line
    assert line in caplog.text
    async with headless(guarded(tmp_path / "b", agents, top=top)) as fleet:
        told = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
    assert not [text for text in told if "there is no inbound authentication" in text]


async def test_pallas_dev_on_loopback_says_that_it_asks_nobody(tmp_path: Path) -> None:
    async with headless(guarded(tmp_path, {"harper": None}), dev=True) as fleet:
        assert await status(fleet.agents[0].url) == 200
        told = [event for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        (notice,) = [event for event in told if "asks no caller for a token" in event.text]
        assert notice.level == "info"


@pytest.mark.slow
@ERA
async def test_changed_rules_hold_at_once_also_where_the_agents_code_is_broken(
    tmp_path: Path, era: str
) -> None:
    root = guarded(tmp_path, {"harper": None})
    async with headless(root, watch=True) as fleet:
        url = fleet.agents[0].url
        port = fleet.agents[0].config.port
        async with client(fleet, "harper", era=era, bearer=CI) as known:
            assert "one" in await ask(known, "one", conversation_id="c")
        (root / "agents" / "harper.py").write_text("1 +\n", "utf-8")
        edit(root, tokens={"ops": {"sha256": sha256_of(OPS)}})

        await answered(url, CI, 401)
        assert await status(url, OPS) == 200
        edit(root, tokens={"ci": {"sha256": sha256_of(CI)}})
        await answered(url, CI, 200)
        assert fleet.agents[0].config.port == port
        async with client(fleet, "harper", era=era, bearer=CI) as known:  # the conversation is still its own
            prompt = await known.get_prompt("harper_history", {"conversation_id": "c"})
            assert len(prompt.messages) == 2


async def test_rules_that_are_wrong_change_nothing(tmp_path: Path) -> None:
    root = guarded(tmp_path, {"harper": None})
    async with headless(root, watch=True) as fleet:
        edit(root, tokens={})
        await until(lambda: [each for each in fleet.hub.since(0).events if "allows no caller" in repr(each)])
        assert await status(fleet.agents[0].url, CI) == 200
        assert await status(fleet.agents[0].url) == 401


async def test_a_guarded_agent_can_be_looked_at_by_whoever_controls_the_fleet(tmp_path: Path) -> None:
    async with headless(guarded(tmp_path, {"harper": None})) as fleet:
        detail = await fleet.describe("harper")
        (own,) = [server for server in detail.servers if not server.server]
        assert (own.problem, [tool.name for tool in own.tools]) == ("", ["send_message", "get_health"])
        with pytest.raises(Fault, match="call it with a bearer token"):
            await fleet.call_tool("harper", "", "send_message", {"message": "x"}, None)
        allowed = await fleet.call_tool("harper", "", "send_message", {"message": "hello"}, CI)
        assert allowed.ok


async def test_an_agent_alone_shows_its_status_and_nothing_else(tmp_path: Path) -> None:
    root = guarded(tmp_path, {"harper": None})
    async with headless(root, only="harper") as fleet:
        base = fleet.agents[0].url.removesuffix("/mcp")
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            for path in ("/healthz", "/readyz", "/metrics"):
                assert (await http.get(base + path)).status_code == 200
                assert (await http.post(base + path)).status_code == 401
            assert (await http.get(base + "/mcp")).status_code == 401


@ERA
async def test_at_one_port_each_agent_has_its_own_gate_and_metadata(tmp_path: Path, era: str) -> None:
    (port,) = free_ports(1)
    async with issuing() as issuer:
        auth = {"jwt": jwt_of(issuer), "scopes": ["run"]}
        root = guarded(tmp_path, {"harper": None, "demo": None}, auth=auth, top={"port": port})
        written = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))
        written.pop("registry_port", None)
        written["agents"]["demo"].pop("port", None)
        own = written["agents"]["harper"].setdefault("port", free_ports(1)[0])
        (root / "agents.yaml").write_text(yaml.safe_dump(written), "utf-8")
        async with headless(root), httpx2.AsyncClient(trust_env=False, timeout=60) as http:
            places = [f"http://127.0.0.1:{port}/agents/{name}/mcp" for name in ("harper", "demo")]
            for url in (*places, f"http://127.0.0.1:{own}/mcp"):
                lines = headers("tools/list")
                refused = await http.post(url, json=call("tools/list"), headers=lines)
                assert refused.status_code == 401
                where = extract_resource_metadata_from_www_auth(refused)
                assert where is not None
                found = await http.get(where)
                assert found.status_code == 200
                metadata = ProtectedResourceMetadata.model_validate_json(found.content)
                assert found.json()["resource"] == url
                assert check_resource_allowed(url, str(metadata.resource))
                bearer = issuer.token(scope="run")
                async with (
                    create_mcp_http_client(headers={"Authorization": f"Bearer {bearer}"}) as given,
                    Client(streamable_http_client(url, http_client=given), mode=era) as known,
                ):
                    assert "hello" in await ask(known, "hello")


@ERA
@pytest.mark.parametrize("scope", ["pooled", "conversation"])
async def test_a_refreshed_token_never_runs_on_a_connection_of_the_one_before(
    tmp_path: Path, era: str, scope: str
) -> None:
    # PR-25
    async with issuing() as issuer, recording() as recorder:
        servers = {"rec": {"url": recorder.url, "protocol_mode": "legacy", "forward_inbound_auth": True}}
        root = guarded(
            tmp_path,
            {"one": agent_module("one", ("rec",))},
            auth={"jwt": jwt_of(issuer)},
            config={"mcp": {"servers": servers}},
            keys={"one": {"instance_scope": scope}},
        )
        first, second = issuer.token(jti="1"), issuer.token(jti="2")
        async with headless(root) as fleet:
            for bearer in (first, second, second):
                async with client(fleet, "one", era=era, bearer=bearer) as ada:
                    await ask(ada, '***CALL_TOOL rec__note {"text": "x"}', conversation_id="c")
            calls = recorder.calls()
            assert [each.bearer for each in calls] == [first, second, second]
            # A session of the downstream's was opened with the token that it is used with.
            assert calls[0].session != calls[1].session == calls[2].session
            for session in {each.session for each in recorder.requests if each.session}:
                assert len({each.bearer for each in recorder.requests if each.session == session} - {""}) <= 1
            runs = [event for event in fleet.hub.since(0).events if isinstance(event, RunStarted)]
            hops = [
                event
                for event in fleet.hub.since(0).events
                if isinstance(event, AuthHop) and event.method == "tools/call"
            ]
            assert len({run.identity for run in runs}) == 1
            assert [hop.fingerprint for hop in hops] == [run.principal for run in runs]
            async with client(fleet, "one", era=era, bearer=second) as ada:
                told = await ada.get_prompt("one_history", {"conversation_id": "c"})
                assert len([each for each in told.messages if each.role == "user"]) >= 3


@pytest.mark.parametrize(
    ("how", "era"), [("forward", ERAS[0]), ("forward", ERAS[1]), ("header", ERAS[0]), ("neither", ERAS[1])]
)
async def test_agents_call_guarded_agents_with_the_callers_token_or_one_of_their_own(
    tmp_path: Path, era: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESEARCH_TOKEN", OPS)
    root = guarded(tmp_path, {"desk": agent_module("desk", ("research",)), "research": None})
    entries = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))["agents"]
    extra: dict[str, Any] = {
        "forward": {"forward_inbound_auth": True},
        "header": {"headers": {"Authorization": "Bearer ${RESEARCH_TOKEN}"}},
        "neither": {},
    }[how]
    url = f"http://127.0.0.1:{entries['research']['port']}/mcp"
    settings = yaml.safe_load((root / "fastagent.config.yaml").read_text("utf-8"))
    settings["mcp"] = {"servers": {"research": {"url": url, "auth": {"oauth": False}, **extra}}}
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    async with headless(root) as fleet:
        warned = [event.text for event in fleet.hub.since(0).events if isinstance(event, Notice)]
        missing = [
            text for text in warned if "agent research asks callers for a token, and none is sent" in text
        ]
        assert bool(missing) is (how == "neither")
        asked = '***CALL_TOOL research__send_message {"message": "hello"}'
        async with client(fleet, "desk", era=era, bearer=CI) as known:
            if how == "neither":
                # It answers without the tools of a server that lets it in no further.
                await known.call_tool("send_message", {"message": asked})
                started = [e.agent for e in fleet.hub.since(0).events if isinstance(e, RunStarted)]
                assert started == ["desk"]
                return
            assert "hello" in await ask(known, asked)
        runs = {e.agent: e.identity for e in fleet.hub.since(0).events if isinstance(e, RunStarted)}
        assert runs == {"desk": "token:ci", "research": "token:ci" if how == "forward" else "token:ops"}
        (desk,) = [each for each in fleet.agents if each.name == "desk"]
        await desk.check_health()
        assert desk.snapshot().downstreams[0].reach in (ProbeResult.OK, ProbeResult.AUTH_REQUIRED)


@ERA
async def test_no_token_stands_in_log_events_snapshots_registry_or_metrics(
    tmp_path: Path, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    # PR-36
    caplog.set_level(logging.DEBUG)
    person = "ada.lovelace@example.com"
    async with issuing() as issuer:
        root = guarded(tmp_path, {"harper": None}, auth={"jwt": jwt_of(issuer)}, top={"server_cards": True})
        async with headless(root, record=True) as fleet:
            bearer, late = issuer.token(person), issuer.token(person, exp=1_000)
            stranger = issuer.token(person, key=SigningKey("one"))
            for each in (bearer, CI):
                async with client(fleet, "harper", era=era, bearer=each) as known:
                    await ask(known, "hello", conversation_id=f"c-{each[-9:]}")
            for each in (late, stranger, OPS + "x"):
                assert await status(fleet.agents[0].url, each) == 401
            said = [json.dumps(encode_event(event), default=str) for event in fleet.hub.since(0).events]
            said.append(encode(fleet.snapshot()).decode())
            said.append(encode(await fleet.describe("harper")).decode())
            said += [
                repr(fleet.exchanges(run.run_id))
                for run in fleet.hub.since(0).events
                if isinstance(run, RunStarted)
            ]
            async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                base = f"http://127.0.0.1:{fleet.project.registry_port}"
                for path in ("/.well-known/mcp/server.json", "/v0.1/servers", "/metrics", "/readyz"):
                    said.append((await http.get(base + path)).text)
                said.append((await http.get(f"{fleet.agents[0].url}/server-card")).text)
            own = fleet.inbound.verifier.own
    said += [record.getMessage() + str(vars(record)) for record in caplog.records]
    whole = "\n".join(said)
    assert "token:ci" in whole
    for secret in (CI, OPS, bearer, late, stranger, own, person, bearer.split(".")[2], sha256_of(CI)):
        assert secret not in whole


async def test_who_is_refused_hears_of_it_in_the_sdks_client(tmp_path: Path) -> None:
    async with headless(guarded(tmp_path, {"harper": None}, auth={"scopes": ["run"]})) as fleet:
        for bearer, says in (
            (None, "needs a token"),
            (OPS, "may not do that"),
            ("x" * 30, "not accepted here"),
        ):
            with pytest.raises((MCPError, ExceptionGroup)) as refused:
                async with client(fleet, "harper", bearer=bearer) as connected:
                    await connected.list_tools()
            assert says in _texts(refused.value)


@pytest.mark.slow
def test_the_check_of_bearers_asks_for_no_token_of_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    servers = {"shop": {"url": "http://127.0.0.1:9/mcp", "forward_inbound_auth": True}}
    root = guarded(
        tmp_path / "project",
        {"one": agent_module("one", ("shop",))},
        auth={"dev": True},
        config={"mcp": {"servers": servers}},
    )
    assert run(["check", "bearer", str(root), "--callers", "2"]) == 0
    assert "ok: no bearer crossed" in capsys.readouterr().out


def _texts(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " ".join(_texts(each) for each in error.exceptions)
    return str(error)


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_the_workbench_hears_the_health_of_an_agent_that_asks_for_a_token(
    tmp_path: Path, era: Literal["modern", "legacy"]
) -> None:
    # PR-31
    root = guarded(tmp_path, {"one": None})
    async with headless(root) as fleet:
        link = McpLink(fleet.agents[0].url, era=era)
        try:
            health = await link.call("get_health", {})
            assert not health.is_error
            assert json.loads(health.content[0].text)["status"] == "ok"
            with pytest.raises(Fault) as refused:
                await link.call("send_message", {"message": "hello"})
            assert refused.value.type is FaultType.AUTH
        finally:
            await link.close()
