"""Whether this machine has the account that the models of some providers are called with.

These providers have no key that a request could try: a library finds the credential when a model is called.
What is looked for is what fast-agent looks for; a contract test compares them. No model is called, and
nothing is renewed. Some libraries ask the machine's cloud for its own account, which may take seconds.
"""

import asyncio
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

ALWAYS: Final = frozenset({"anthropic-vertex", "bedrock", "codexresponses", "copilot"})
"""The providers that always need an account. Google and Azure need one if their block says so."""
MAX_LOOKUPS: Final = 4
"""Lookups of one provider that may run at the same time, in this process."""

_GOOGLE_PROJECT: Final = (
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "GOOGLE_CLOUD_PROJECT",
    "GOOGLE_PROJECT_ID",
    "GCLOUD_PROJECT",
    "GCP_PROJECT",
)
_GOOGLE_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_GOOGLE_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"

_Settings = Mapping[str, Any]


def needs_account(settings: _Settings, provider: str) -> bool:
    """Whether the models of ``provider`` are called with an account of this machine, by these settings."""
    match provider:
        case "google":
            return bool(_block(_block(settings, "google"), "vertex_ai").get("enabled"))
        case "azure":
            return bool(_block(settings, "azure").get("use_default_azure_credential"))
        case _:
            return provider in ALWAYS


async def account_problem(
    settings: _Settings, provider: str, environ: Mapping[str, str], *, timeout: float
) -> tuple[str, bool]:
    """Return why ``provider`` has no account on this machine and how it gets one; empty if it has one.

    Also whether that is certain: a library that fails, or takes longer than ``timeout`` seconds, may find the
    account the next time. Such a library may hang for good, so only some lookups run at the same time.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[str, bool]] = loop.create_future()
    late = f"no account was found within {timeout:g} s; {_CURES[provider]}", False
    name = f"account-{provider}"

    def settle(outcome: tuple[str, bool]) -> None:
        if not found.done():
            found.set_result(outcome)

    def look() -> None:
        outcome = _outcome(settings, provider, environ)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, outcome)

    if sum(each.name == name for each in threading.enumerate()) >= MAX_LOOKUPS:
        return late
    # Not in the loop's pool: a program that ends would wait for its threads.
    threading.Thread(target=look, name=name, daemon=True).start()
    try:
        async with asyncio.timeout(timeout):
            return await found
    except TimeoutError:
        return late


def _outcome(settings: _Settings, provider: str, environ: Mapping[str, str]) -> tuple[str, bool]:
    try:
        missing, certain = _LOOKUPS[provider](settings, environ), True
    except Exception as error:
        # Its text may repeat what is in a file of credentials.
        missing, certain = f"its account cannot be read ({type(error).__name__})", False
    return f"{missing}; {_CURES[provider]}" if missing else "", certain


def _bedrock(settings: _Settings, environ: Mapping[str, str]) -> str:
    if not _installed("boto3"):
        return "boto3 is not installed (`pip install boto3`)"
    profile = _text(_block(settings, "bedrock"), "profile") or environ.get("AWS_PROFILE") or None
    # A profile that is named comes before keys of the environment.
    if not profile and environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        return ""
    session = import_module("boto3").Session(profile_name=profile)
    return "" if session.get_credentials() is not None else "there are no AWS credentials"


def _google(settings: _Settings, environ: Mapping[str, str]) -> str:
    return _google_project(environ, _block(_block(settings, "google"), "vertex_ai"))


def _anthropic_vertex(settings: _Settings, environ: Mapping[str, str]) -> str:
    return _google_project(environ, _block(_block(settings, "anthropic"), "vertex_ai"))


def _google_project(environ: Mapping[str, str], block: _Settings) -> str:
    auth, errors = import_module("google.auth"), import_module("google.auth.exceptions")
    given = environ.get(_GOOGLE_FILE, "")
    try:
        if given:
            _, project = auth.load_credentials_from_file(given, scopes=[_GOOGLE_SCOPE])
        else:
            _, project = auth.default(scopes=[_GOOGLE_SCOPE])
    except errors.DefaultCredentialsError:
        return f"the file of {_GOOGLE_FILE} cannot be used" if given else "there are no Google credentials"
    named = _text(block, "project_id") or next(_set(environ, _GOOGLE_PROJECT), project)
    return "" if named else "no Google Cloud project is named"


def _azure(settings: _Settings, _: Mapping[str, str]) -> str:
    if not _text(_block(settings, "azure"), "base_url"):
        return "azure.base_url is not set in fastagent.config.yaml"
    return (
        ""
        if _installed("azure.identity")
        else "azure-identity is not installed (`pip install azure-identity`)"
    )


def _codex(settings: _Settings, environ: Mapping[str, str]) -> str:
    if _text(_block(settings, "codexresponses"), "api_key") or environ.get("CODEX_API_KEY"):
        return ""
    tokens = import_module("fast_agent.llm.provider.openai.codex_oauth").load_codex_tokens()
    if tokens is None:
        return "there is no sign-in"
    return "the sign-in has expired" if tokens.is_expired() and not tokens.refresh_token else ""


def _copilot(_: _Settings, environ: Mapping[str, str]) -> str:
    if environ.get("COPILOT_GITHUB_TOKEN"):
        return ""
    stored = import_module("fast_agent.auth.credentials").load_oauth_credential("copilot")
    if stored is None:
        return "there is no sign-in"
    expires_at, renews = stored.credential.expires_at, stored.credential.refresh_token
    expired = expires_at is not None and expires_at <= time.time() and not renews
    return "the sign-in has expired" if expired else ""


_LOOKUPS: Final[Mapping[str, Callable[[_Settings, Mapping[str, str]], str]]] = {
    "anthropic-vertex": _anthropic_vertex,
    "azure": _azure,
    "bedrock": _bedrock,
    "codexresponses": _codex,
    "copilot": _copilot,
    "google": _google,
}
_VERTEX_CURE: Final = (
    f"run `gcloud auth application-default login` or set {_GOOGLE_FILE}, and set GOOGLE_CLOUD_PROJECT."
)
_CURES: Final = {
    "anthropic-vertex": _VERTEX_CURE,
    "azure": "sign in with `az login`.",
    "bedrock": "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    "codexresponses": "run `fast-agent auth provider login codex` or set CODEX_API_KEY.",
    "copilot": "run `fast-agent auth provider login copilot` or set COPILOT_GITHUB_TOKEN.",
    "google": _VERTEX_CURE,
}


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package
        return False


def _set(environ: Mapping[str, str], names: tuple[str, ...]) -> Iterator[str]:
    return (value for name in names if (value := environ.get(name, "").strip()))


def _block(settings: Any, name: str) -> Mapping[str, Any]:
    block = settings.get(name) if isinstance(settings, Mapping) else None
    return block if isinstance(block, Mapping) else {}


def _text(block: Mapping[str, Any], key: str) -> str:
    value = block.get(key)
    return value.strip() if isinstance(value, str) else ""
