"""Checks at startup whether each model provider accepts its key and has the model."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal
from urllib.parse import quote, urlsplit

import httpx2

from pallas.config.models import Project
from pallas.safe_text import one_line

TIMEOUT: Final = 5.0
ANTHROPIC_URL: Final = "https://api.anthropic.com"
OPENAI_URL: Final = "https://api.openai.com/v1"
ANTHROPIC_PROBE_MODEL: Final = "claude-sonnet-4-5"
_ANTHROPIC_VERSION: Final = "2023-06-01"
# Most models of one provider that are checked in addition to the project's own.
_MAX_MODELS: Final = 10
_MAX_BODY: Final = 8 * 1024 * 1024

Provider = Literal["anthropic", "openai"]
PROVIDERS: Final[tuple[Provider, ...]] = ("anthropic", "openai")


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """The result of checking one provider or one model."""

    provider: str  # the provider, or ``provider.model`` for a model
    active: bool  # whether ``default_model`` names it
    ok: bool
    message: str = ""  # empty if ``ok``, else one line that begins with ``provider``
    # The provider itself said so: a refused key, a missing model. Anything else may be temporary
    certain: bool = True


@dataclass(frozen=True, slots=True)
class _Check:
    """One request to a provider."""

    provider: Provider
    active: bool
    url: str
    headers: Mapping[str, str]
    model: str  # must be in the response; empty if only access is checked
    label: str = ""  # for the check of a single model; empty for the provider's own


async def preflight(project: Project) -> tuple[ProviderReport, ...]:
    """Ask every provider of the project that has a key, all at once, 5 s at most (SPEC PR-20).

    A failure is a report, never an error. Providers other than ``anthropic`` and ``openai`` are not asked.
    The models that agents name under ``providers:`` are checked as well; each has a report of its own, which
    no other agent is blamed for, if its provider's own check succeeded.
    """
    used = _used(project)
    checks = [check for provider in PROVIDERS if (check := _check(project, provider, provider in used))]
    own = {check.provider: check for check in checks}
    for provider, models in used.items():
        if provider in own:
            checks += [_for_model(own[provider], model) for model in models if model != own[provider].model]
    if not checks:
        return ()
    client = await asyncio.to_thread(httpx2.AsyncClient, timeout=None, follow_redirects=False)
    async with client:
        problems = await asyncio.gather(*(_problem(client, check) for check in checks))
    found = list(zip(checks, problems, strict=True))
    well = {check.provider for check, (problem, _) in found if not check.label and not problem}
    return tuple(
        ProviderReport(
            check.label or check.provider,
            check.active,
            not problem,
            f"{check.label or check.provider}: {problem}" if problem else "",
            certain,
        )
        for check, (problem, certain) in found
        if not check.label or check.provider in well
    )


def _used(project: Project) -> dict[Provider, list[str]]:
    """The models that agents name under ``providers:``, by provider, each once."""
    found: dict[Provider, list[str]] = {}
    for agent in project.agents.values():
        for spec in (spec for each in agent.providers for spec in each.models):
            name, _, model = spec.partition("?")[0].partition(".")
            provider = next((each for each in PROVIDERS if each == name), None)
            if provider is None or not model:
                continue
            models = found.setdefault(provider, [])
            if model not in models and len(models) < _MAX_MODELS:
                models.append(model)
    return found


def _for_model(own: _Check, model: str) -> _Check:
    url = own.url
    if own.provider == "anthropic":
        url = f"{url.rpartition('/')[0]}/{quote(model, safe='')}"
    return replace(own, active=False, url=url, model=model, label=f"{own.provider}.{model}")


def _check(project: Project, provider: Provider, used: bool = False) -> _Check | None:
    settings = project.settings.get(provider)
    settings = settings if isinstance(settings, Mapping) else {}
    active = project.provider == provider
    key = _text(settings, "api_key")
    if not key and (active or used):
        # fast-agent also takes the key of a provider from the environment.
        key = os.environ.get(f"{provider.upper()}_API_KEY", "").strip()
    if not key:
        return None
    # "?" begins fast-agent's own parameters of a model, which the provider does not know.
    model = project.model.partition("?")[0] if active else ""
    if provider == "anthropic":
        base = (_text(settings, "base_url") or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")
        asked = quote(model or ANTHROPIC_PROBE_MODEL, safe="")
        headers = {"x-api-key": key, "anthropic-version": _ANTHROPIC_VERSION}
        return _Check(provider, active, f"{base}/v1/models/{asked}", headers, model)
    base = (_text(settings, "base_url") or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL).rstrip("/")
    return _Check(provider, active, f"{base}/models", {"Authorization": f"Bearer {key}"}, model)


def _text(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    return value.strip() if isinstance(value, str) else ""


async def _problem(client: httpx2.AsyncClient, check: _Check) -> tuple[str, bool]:
    """The problem, empty if there is none, and whether it is certain.

    It does not contain the provider's name or anything secret.
    """
    where = _host(check.url)
    try:
        async with asyncio.timeout(TIMEOUT):
            status, body = await _get(client, check)
    except TimeoutError:
        return f"no answer from {where} within {TIMEOUT:g} s", False
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        # The texts of these may repeat headers and URLs.
        return f"cannot connect to {where} ({type(error).__name__})", False
    missing = f"model {one_line(check.model or ANTHROPIC_PROBE_MODEL, 100)!r} not found"
    if status in (401, 403):
        return f"the API key was refused (HTTP {status})", True
    if status == 404 and check.provider == "anthropic":
        return missing, True
    if status != 200:
        return f"HTTP {status} from {where}", False
    if check.provider == "openai" and check.model:
        known = _models(body)
        if known is None:
            return f"{where} did not answer with a list of models", False
        return ("", True) if check.model in known else (missing, True)
    return "", True


def _host(url: str) -> str:
    try:
        host = urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        host = ""
    return one_line(host, 100) or "its address"


async def _get(client: httpx2.AsyncClient, check: _Check) -> tuple[int, bytes]:
    async with client.stream("GET", check.url, headers=dict(check.headers)) as response:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY:
                break
        return response.status_code, bytes(body)


def _models(body: bytes) -> set[str] | None:
    """The ids in a list of models, None if it is not such a list."""
    try:
        answer = json.loads(body)
        return {entry["id"] for entry in answer["data"]}
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
