"""Checks whether each model provider can be reached, accepts its key and has the models of the agents."""

import asyncio
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from pallas.config.agent_code import uses_default_model
from pallas.config.kinds import BackendConfig
from pallas.config.models import Project
from pallas.config.notes import nearest
from pallas.safe_text import one_line

from .cloud_account import account_problem, needs_account
from .probe import certificates, probe_client
from .provider_endpoint import ANTHROPIC_PROBE_MODEL, Endpoint, endpoint_of, key_place

TIMEOUT: Final = 5.0
AT_ONCE: Final = "it is used as soon as you save."
AT_START: Final = "send SIGHUP or start again to use it."
_WITH_KEY: Final = ("anthropic", "openai")
"""Providers that are asked if the project has a key of theirs, whether or not an agent uses it."""
# Most models of one provider that are checked in addition to the project's own.
_MAX_MODELS: Final = 10
_MAX_BODY: Final = 8 * 1024 * 1024
_MAX_AT_ONCE: Final = 20
_NO_ADDRESS: Final = "set base_url or resource_name under azure in fastagent.config.yaml."
_NO_LIST: Final = (404, 405, 501)
_ANY_MODEL: Final = frozenset({"llamacpp", "pallas"})
"""Owners of models in the lists of servers that answer to any name."""

_Request = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class ProviderReport:
    """The result of checking one provider or one model."""

    provider: str  # the provider, or ``provider.model`` for a model
    active: bool  # whether ``default_model`` names it
    ok: bool
    message: str = ""  # empty if ``ok``, else one line that begins with ``provider``
    # The provider itself said so: a refused key, a missing model. Anything else may be temporary
    certain: bool = True
    missing: str = field(default="", compare=False)  # the model that is not there, if only that is wrong
    needed: bool = field(default=True, compare=False)  # whether an agent asks it


@dataclass(frozen=True, slots=True)
class _Check:
    """One question to a provider, and how its report is called."""

    provider: str
    endpoint: Endpoint
    active: bool
    model: str  # must be in the response; empty if only access is checked
    label: str = ""  # for the check of a single model; empty for the provider's own
    variable: str = ""  # where its key should be
    key_place: str = ""  # where its key is

    @property
    def name(self) -> str:
        return self.label or self.provider


@dataclass(frozen=True, slots=True)
class _Response:
    """An answer, or why there is none; ``certain`` as in the report."""

    status: int = 0
    body: bytes = b""
    problem: str = ""
    certain: bool = False


async def preflight(
    project: Project,
    models: Iterable[str] = (),
    *,
    environ: Mapping[str, str] | None = None,
    advice: str = AT_ONCE,
    skip: Iterable[str] = (),
) -> tuple[ProviderReport, ...]:
    """Ask every provider of the project, all at once, 5 s at most (PR-20); none is asked for an answer.

    ``models`` are further ``provider.model`` that agents use. A failure is a report, never an error. Each
    address is asked once with each credential, for however many models it has. ``advice`` is when a key in
    ``.env`` is used; an endpoint whose host and port are in ``skip`` is not asked. For providers that are
    called with an account of this machine, it is looked for. The backends under ``llm:`` are asked as well.
    The models other than the project's own have a report each, if their provider's own check succeeded.
    A report that is not ``needed`` is of a provider that no agent asks.
    """
    environ = os.environ if environ is None else environ
    used = _used(project, models)
    of_accounts, of_endpoints = await asyncio.gather(
        asyncio.gather(*(_account_report(each, environ) for each in _accounts(project, used))),
        _endpoint_reports(_checks(project, used, environ), advice, frozenset(skip)),
    )
    reports = (*of_endpoints, *of_accounts)
    unused = {each.provider for each in reports if not each.ok} & (
        {*_WITH_KEY, project.provider} - used.keys()
    )
    if project.provider in unused and await asyncio.to_thread(_is_default_needed, project):
        unused.remove(project.provider)
    return tuple(replace(each, needed=each.provider not in unused) for each in reports)


def _is_default_needed(project: Project) -> bool:
    return not project.agents or any(uses_default_model(project, each) for each in project.agents.values())


@dataclass(frozen=True, slots=True)
class _Account:
    """A provider whose account is looked for, by these settings, and how its report is called."""

    label: str
    provider: str
    settings: Mapping[str, Any]
    active: bool = False


def _accounts(project: Project, used: Iterable[str]) -> Iterator[_Account]:
    for name in _named(project, used):
        if needs_account(project.settings, name):
            yield _Account(name, name, project.settings, project.provider == name)
    for backend in project.llm.backends:
        settings = _settings_of(project, backend)
        if needs_account(settings, backend.provider):
            yield _Account(backend_label(backend), backend.provider, settings)


async def _account_report(account: _Account, environ: Mapping[str, str]) -> ProviderReport:
    problem, certain = await account_problem(account.settings, account.provider, environ, timeout=TIMEOUT)
    message = f"{account.label}: {problem}" if problem else ""
    return ProviderReport(account.label, account.active, not problem, message, certain)


async def _endpoint_reports(
    found: list[_Check], advice: str, skip: frozenset[str]
) -> tuple[ProviderReport, ...]:
    checks = [check for check in found if check.endpoint.host not in skip]
    if not checks:
        return ()
    wanted = {check.endpoint.request(check.model) for check in checks if check.endpoint.can_be_asked}
    hosts = {check.endpoint.request(check.model): check.endpoint.host for check in checks}
    async with probe_client(await asyncio.to_thread(certificates)) as client:
        free = asyncio.Semaphore(_MAX_AT_ONCE)
        answers = await asyncio.gather(*(_asked(client, free, each, hosts[each]) for each in wanted))
    responses = dict(zip(wanted, answers, strict=True))
    reports = [_report(check, responses, advice) for check in checks]
    well = {
        check.provider
        for check, report in zip(checks, reports, strict=True)
        if not check.label and (report.ok or report.missing)
    }
    return tuple(
        report
        for check, report in zip(checks, reports, strict=True)
        if not check.label or check.provider in well
    )


def _named(project: Project, used: Iterable[str]) -> list[str]:
    """The providers of the project and of its agents, each once."""
    return [name for name in dict.fromkeys((project.provider, *used)) if name]


def _checks(project: Project, used: Mapping[str, list[str]], environ: Mapping[str, str]) -> list[_Check]:
    names = dict.fromkeys((*_WITH_KEY, *_named(project, used)))
    own = [check for name in names if (check := _check(project, name, name in used, environ))]
    return [*own, *_of_backends(project, environ)] + [
        replace(check, active=False, model=model, label=f"{check.provider}.{model}")
        for check in own
        for model in used.get(check.provider, ())
        if model != check.model
    ]


def _of_backends(project: Project, environ: Mapping[str, str]) -> Iterator[_Check]:
    """The checks of what handlers ask; which handler asks which backend is not known."""
    for backend in project.llm.backends:
        if endpoint := endpoint_of(_settings_of(project, backend), backend.provider, environ):
            place = f"its key at {backend.where}" if backend.api_key else key_place(project, backend.provider)
            variable = endpoint.api.variable
            yield _Check(backend_label(backend), endpoint, False, "", variable=variable, key_place=place)


def _settings_of(project: Project, backend: BackendConfig) -> Mapping[str, Any]:
    """The project's settings with the backend's own key and address in its provider's block."""
    given = {"api_key": backend.api_key, "base_url": backend.base_url}
    block = project.settings.get(backend.provider)
    block = {
        **(block if isinstance(block, Mapping) else {}),
        **{key: text for key, text in given.items() if text},
    }
    return {**project.settings, backend.provider: block}


def own_hosts(project: Project) -> frozenset[str]:
    """Where the fleet itself starts servers: these do not answer before it has."""
    ports = [urlsplit(server.url).port for server in project.servers.values()]
    ports += [project.scripted.port] if project.scripted is not None else []
    return frozenset(f"{host}:{port}" for port in ports for host in ("127.0.0.1", "localhost", "[::1]"))


def backend_label(backend: BackendConfig) -> str:
    """What the report of a backend is called."""
    return f"backend {backend.id}"


def _used(project: Project, models: Iterable[str]) -> dict[str, list[str]]:
    """The models that agents use or name under ``providers:``, by provider, each once."""
    found: dict[str, list[str]] = {}
    named = (spec for agent in project.agents.values() for each in agent.providers for spec in each.models)
    for spec in (*models, *named):
        provider, _, model = spec.partition("?")[0].partition(".")
        if model and model not in (known := found.setdefault(provider, [])) and len(known) < _MAX_MODELS:
            known.append(model)
    return found


def _check(project: Project, provider: str, used: bool, environ: Mapping[str, str]) -> _Check | None:
    """The check of a provider; None if it cannot be asked, or is neither used nor has a key."""
    active = project.provider == provider
    endpoint = endpoint_of(project.settings, provider, environ, from_environ=active or used)
    if endpoint is None or (endpoint.lacks_key and not active and not used):
        return None
    # "?" begins fast-agent's own parameters of a model, which the provider does not know.
    model = project.model.partition("?")[0] if active else ""
    key = project.keys.get(provider)
    variable = key.variable if key is not None and not key.is_set else endpoint.api.variable
    place = key_place(project, provider)
    return _Check(provider, endpoint, active, model, variable=variable, key_place=place)


def _report(check: _Check, responses: Mapping[_Request, _Response], advice: str) -> ProviderReport:
    missing = ""
    if check.endpoint.lacks_key:
        tail = f"; {advice}" if advice else "."
        problem, certain = f"{check.variable} is not set. Put it into .env{tail}", True
    elif not check.endpoint.base_url:
        problem, certain = f"it has no address: {_NO_ADDRESS}", True
    else:
        problem, certain, missing = _problem(check, responses[check.endpoint.request(check.model)])
    message = f"{check.name}: {problem}" if problem else ""
    return ProviderReport(check.name, check.active, not problem, message, certain, missing)


def _problem(check: _Check, response: _Response) -> tuple[str, bool, str]:
    """The problem, empty if there is none; whether it is certain; the model if only that is missing.

    It does not contain the provider's name or anything secret.
    """
    endpoint, status = check.endpoint, response.status
    if response.problem:
        return response.problem, response.certain, ""
    if status in (401, 403):
        if endpoint.key in ("", endpoint.api.key):
            return f"it needs an API key (HTTP {status}); put {check.variable} into .env", True, ""
        return f"the API key was refused (HTTP {status}); correct {check.key_place}", True, ""
    if status in _NO_LIST and endpoint.lists:
        return "", True, ""  # it need not have a list of models
    if status == 404:
        asked = check.model or ANTHROPIC_PROBE_MODEL
        return f"model {one_line(asked, 100)!r} not found", True, asked
    if status != 200:
        return f"HTTP {status} from {endpoint.host}", False, ""
    if endpoint.lists and check.model:
        return _in_list(check, response.body)
    return "", True, ""


def _in_list(check: _Check, body: bytes) -> tuple[str, bool, str]:
    known, model = _models(body), check.model
    if known is None:
        if check.provider != "openai":
            return "", True, ""
        return f"{check.endpoint.host} did not answer with a list of models", False, ""
    owners = set(known.values())
    if not check.endpoint.api.lists_all or (owners and owners <= _ANY_MODEL):
        return "", True, ""
    # Ollama has tags, and OpenRouter has variants of its models.
    if not known.keys().isdisjoint({model, f"{model}:latest", model.partition(":")[0]}):
        return "", True, ""
    meant = nearest(model, known)
    hint = f" (did you mean {one_line(meant, 100)}?)" if meant else ""
    return f"model {one_line(model, 100)!r} not found{hint}", True, model


async def _asked(
    client: httpx2.AsyncClient, free: asyncio.Semaphore, request: _Request, host: str
) -> _Response:
    try:
        async with free, asyncio.timeout(TIMEOUT):
            return await _get(client, request)
    except TimeoutError:
        return _Response(problem=f"no answer from {host} within {TIMEOUT:g} s")
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as error:
        # The texts of these may repeat headers and URLs.
        return _Response(problem=f"cannot connect to {host} ({type(error).__name__})")


async def _get(client: httpx2.AsyncClient, request: _Request) -> _Response:
    url, headers = request
    async with client.stream("GET", url, headers=dict(headers)) as response:
        body = bytearray()
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_BODY:
                break
        return _Response(response.status_code, bytes(body))


def _models(body: bytes) -> dict[str, str] | None:
    """The ids in a list of models with their owners, None if it is not such a list."""
    try:
        answer = json.loads(body)
        entries = answer if answer and isinstance(answer, list) else answer["data"]
        return {entry["id"]: str(entry.get("owned_by", "")) for entry in entries}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
