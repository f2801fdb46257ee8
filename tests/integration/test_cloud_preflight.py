"""Providers that are called with an account of a cloud, or through a gateway: what is said before a call."""

import base64
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from support.fake_downstreams import FakeDownstream, serving, status
from support.ports import free_ports
from support.waiting import until

from pallas.config.kinds import BackendConfig, LlmRouting
from pallas.config.models import Project
from pallas.health import cloud_account
from pallas.health.cloud_account import MAX_LOOKUPS, account_problem
from pallas.health.preflight import preflight

KEY = "key-canary-8a1f"


def _project(provider: str, settings: dict[str, Any]) -> Project:
    return Project(
        Path("/p"), Path("/p/agents.yaml"), "p", {}, provider=provider, model="m", settings=settings
    )


async def _message(provider: str, settings: dict[str, Any], environ: dict[str, str] | None = None) -> str:
    (report,) = await preflight(_project(provider, settings), environ=environ or {}, advice="")
    assert (report.provider, report.active, report.ok) == (provider, True, not report.message)
    return report.message


async def _azure(fake: FakeDownstream, request: Request, body: dict[str, Any]) -> Response:
    return JSONResponse({"data": []}, 200 if request.headers.get("api-key") == KEY else 401)


@pytest.fixture(autouse=True)
def no_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which there is no sign-in; its home."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "CODEX_HOME", "CODEX_AUTH_JSON_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FAST_AGENT_AUTH_FILE", str(tmp_path / "auth.json"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    return tmp_path


async def test_an_azure_resource_is_asked_with_its_key() -> None:  # PR-20
    async with serving(fake := FakeDownstream(_azure)) as origin:
        block = {"base_url": f"{origin}/", "api_key": KEY}
        assert await _message("azure", {"azure": block}) == ""
        # A deployment is not in the list of models.
        assert {seen.path for seen in fake.seen} == {"/openai/models"}
        assert await _message("azure", {"azure": {**block, "api_key": "other"}}) == (
            "azure: the API key was refused (HTTP 401); correct AZURE_API_KEY in .env or the environment"
        )
    (port,) = free_ports(1)
    dead = {"azure": {"base_url": f"http://127.0.0.1:{port}", "api_key": KEY}}
    assert await _message("azure", dead) == f"azure: cannot connect to 127.0.0.1:{port} (ConnectError)"
    assert await _message("azure", {}) == "azure: AZURE_API_KEY is not set. Put it into .env."
    assert await _message("azure", {}, {"AZURE_API_KEY": KEY}) == (
        "azure: it has no address: set base_url or resource_name under azure in fastagent.config.yaml."
    )


async def test_a_gateway_of_tensorzero_is_asked_for_its_health() -> None:
    async with serving(fake := FakeDownstream(status(200))) as origin:
        settings = {"tensorzero": {"base_url": origin, "api_key": KEY}}
        assert await _message("tensorzero", settings) == ""
        (seen,) = fake.seen
        assert (seen.path, KEY in str(seen.headers)) == ("/health", False)
        fake.answer = status(503)
        host = origin.removeprefix("http://")
        assert await _message("tensorzero", settings) == f"tensorzero: HTTP 503 from {host}"


@pytest.mark.parametrize(
    ("provider", "settings", "problem"),
    [
        ("anthropic-vertex", {}, "there are no Google credentials; run `gcloud auth"),
        ("google", {"google": {"vertex_ai": {"enabled": True}}}, "there are no Google credentials; run"),
        ("codexresponses", {}, "there is no sign-in; run `fast-agent auth provider login codex`"),
        ("copilot", {}, "there is no sign-in; run `fast-agent auth provider login copilot`"),
        (
            "azure",
            {"azure": {"use_default_azure_credential": True}},
            "azure.base_url is not set in fastagent.config.yaml; sign in",
        ),
    ],
)
async def test_an_account_that_is_missing_is_told_with_the_cure(
    provider: str, settings: dict[str, Any], problem: str
) -> None:
    assert (await _message(provider, settings)).startswith(f"{provider}: {problem}")


@pytest.mark.parametrize(
    ("provider", "settings", "environ"),
    [
        ("codexresponses", {"codexresponses": {"api_key": KEY}}, {}),
        ("codexresponses", {}, {"CODEX_API_KEY": KEY}),
        ("copilot", {}, {"COPILOT_GITHUB_TOKEN": KEY}),
    ],
)
async def test_a_key_in_place_of_a_sign_in_is_enough(
    provider: str, settings: dict[str, Any], environ: dict[str, str]
) -> None:
    assert await _message(provider, settings, environ) == ""


async def test_sign_ins_are_found_and_those_that_have_expired_are_told(no_accounts: Path) -> None:
    def signed_in(expires_at: float, refresh_token: str | None = None) -> None:
        token = {"access_token": KEY, "refresh_token": refresh_token, "expires_at": expires_at}
        document = {"providers": {"codex": token, "copilot": token}}
        (no_accounts / "auth.json").write_text(json.dumps(document))

    signed_in(time.time() + 3600)
    assert await _message("codexresponses", {}) == ""
    assert await _message("copilot", {}) == ""
    signed_in(time.time() - 3600, "renews")
    assert await _message("codexresponses", {}) == ""
    assert await _message("copilot", {}) == ""
    signed_in(time.time() - 3600)
    for provider in ("codexresponses", "copilot"):
        message = await _message(provider, {})
        assert message.startswith(f"{provider}: the sign-in has expired; run `fast-agent auth")
    (no_accounts / "auth.json").write_text("{" + KEY)
    message = await _message("copilot", {})
    assert message.startswith("copilot: its account cannot be read (ValidationError); run")


@pytest.mark.filterwarnings("ignore:The load_credentials_from_file method:DeprecationWarning")
async def test_googles_credentials_are_found_where_the_environment_names_them(no_accounts: Path) -> None:
    file = no_accounts / "account.json"
    person = {"type": "authorized_user", "client_id": "c", "client_secret": KEY, "refresh_token": KEY}
    file.write_text(json.dumps(person))
    environ = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    assert await _message("anthropic-vertex", {}, {**environ, "GOOGLE_CLOUD_PROJECT": "p"}) == ""
    block = {"anthropic": {"vertex_ai": {"project_id": "p"}}}
    assert await _message("anthropic-vertex", block, environ) == ""
    message = await _message("anthropic-vertex", {}, environ)
    assert message.startswith("anthropic-vertex: no Google Cloud project is named; run")
    for text in ("{", "{}", base64.b64encode(KEY.encode()).decode()):
        file.write_text(text)
        message = await _message("anthropic-vertex", {}, environ)
        assert "GOOGLE_APPLICATION_CREDENTIALS cannot be used; run" in message
        assert KEY not in message
    file.unlink()
    assert "GOOGLE_APPLICATION_CREDENTIALS cannot be used; run" in await _message(
        "anthropic-vertex", {}, environ
    )


async def test_a_library_of_a_cloud_that_never_answers_costs_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    never, asked = threading.Event(), list[int]()

    def hangs(*_: Any) -> str:
        asked.append(1)
        never.wait(60)
        return ""

    monkeypatch.setattr(cloud_account, "_LOOKUPS", {"bedrock": hangs})
    late = "no account was found within 0.05 s; set AWS_PROFILE"
    for _ in range(MAX_LOOKUPS + 2):
        problem, certain = await account_problem({}, "bedrock", {}, timeout=0.05)
        assert (problem.startswith(late), certain) == (True, False)
    never.set()
    await until(lambda: not [each for each in threading.enumerate() if each.name == "account-bedrock"])
    # What hangs for good is not asked again and again.
    assert len(asked) == MAX_LOOKUPS
    assert await account_problem({}, "bedrock", {}, timeout=60) == ("", True)


async def test_accounts_of_backends_that_handlers_ask_are_looked_for() -> None:
    backends = (
        BackendConfig("near", "codexresponses", api_key=KEY),
        BackendConfig("far", "codexresponses"),
    )
    project = replace(_project("", {}), llm=LlmRouting(backends=backends))
    near, far = await preflight(project, environ={}, advice="")
    assert (near.provider, near.ok, near.message) == ("backend near", True, "")
    assert (far.provider, far.active, far.ok) == ("backend far", False, False)
    assert far.message.startswith("backend far: there is no sign-in; run `fast-agent auth")


async def test_without_boto3_bedrock_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud_account, "_installed", lambda module: module != "boto3")
    message = await _message("bedrock", {}, {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY})
    assert message.startswith("bedrock: boto3 is not installed (`pip install boto3`); set AWS_PROFILE")


async def test_accounts_of_aws_are_found_where_boto3_finds_them(
    no_accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(no_accounts / "aws"))
    assert (await _message("bedrock", {})).startswith("bedrock: there are no AWS credentials; set AWS")
    keys = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": KEY}
    assert await _message("bedrock", {}, keys) == ""
    (no_accounts / "aws").write_text(f"[work]\naws_access_key_id={KEY}\naws_secret_access_key={KEY}\n")
    assert await _message("bedrock", {"bedrock": {"profile": "work"}}) == ""
    assert await _message("bedrock", {}, {"AWS_PROFILE": "work"}) == ""
    # A profile that is named comes before keys, for boto3 too.
    assert "(ProfileNotFound)" in await _message("bedrock", {"bedrock": {"profile": "absent"}}, keys)
    message = await _message("bedrock", {"bedrock": {"profile": "absent"}})
    assert message.startswith("bedrock: its account cannot be read (ProfileNotFound); set")
