"""Gives the libraries of model providers our HTTP clients, makes them send each request once, and records it.

fast-agent makes a client of a provider's library for each model call, with a connection of its own.
``tests/contract/test_model_client_seam.py`` fails when the wrapped code changes.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from pallas.executors.model_client.provider_connections import ClientKey, provider_connections
from pallas.model.fingerprint import fingerprint
from pallas.telemetry.step_record import model_step

from . import plain_requests_seam
from .provider_errors import is_lost

CLIENTS: Final = ("_openai_client", "_responses_client", "_initialize_anthropic_client")
"""How fast-agent makes clients of the libraries of OpenAI and Anthropic."""
GOOGLE: Final = "_initialize_google_client"
GOOGLE_OPTIONS: Final = "_google_http_options"
CALL: Final = "_execute_with_retry"
"""How fast-agent calls a model, with its retries."""
_INSTALLED: Final = "_pallas_http_clients"


class _LostError(TimeoutError):
    """A lost connection to Google. fast-agent would ask again by itself after any other exception."""


def install(llm: Any) -> None:
    """Give the clients that this model object creates our connections; the second call does nothing."""
    if llm is None or getattr(llm, _INSTALLED, False):
        return
    for name in CLIENTS:
        if hasattr(llm, name):
            setattr(llm, name, _with_ours(getattr(llm, name)))
    if hasattr(llm, GOOGLE):
        setattr(llm, GOOGLE_OPTIONS, _google_options(llm, getattr(llm, GOOGLE_OPTIONS)))
        setattr(llm, GOOGLE, _google_client(getattr(llm, GOOGLE)))
    if hasattr(llm, CALL):
        setattr(llm, CALL, _recorded(llm, getattr(llm, CALL)))
    setattr(llm, _INSTALLED, True)


def _recorded(llm: Any, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def recorded(*given: Any, **options: Any) -> Any:
        with model_step(str(getattr(llm.provider, "config_name", llm.provider))):
            return await call(*given, **options)

    return recorded


def _with_ours(make: Callable[[], Any]) -> Callable[[], Any]:
    def client() -> Any:
        found = make()
        plain_requests_seam.install()
        if not hasattr(found, "with_options"):  # Amazon's
            return found
        theirs: Any = found._client
        ours = provider_connections().client(
            ClientKey(
                str(found.base_url),
                _credential(found),
                trust_env=theirs.trust_env,
                follow_redirects=theirs.follow_redirects,
            )
        )
        return found.with_options(http_client=ours, max_retries=0)

    return client


def _credential(client: Any) -> str:
    """A fingerprint of the credentials that this client sends with each request."""
    key = getattr(client, "api_key", None) or getattr(client, "auth_token", None)
    headers = sorted(each for each in client.default_headers.items() if isinstance(each[1], str))
    return fingerprint(repr((str(key), headers)))


def _google_options(llm: Any, make: Callable[..., Any]) -> Callable[..., Any]:
    def options(**given: Any) -> Any:
        from google.genai.types import HttpOptions

        found = make(**given) or HttpOptions()
        key = "" if given.get("vertex_enabled") else str(llm._api_key())
        ours = provider_connections().client(
            ClientKey(f"google {found.base_url or ''}", fingerprint(repr((key, found.headers))))
        )
        return found.model_copy(update={"httpx_async_client": ours})

    return options


def _google_client(make: Callable[..., Any]) -> Callable[..., Any]:
    def client(**options: Any) -> Any:
        found = make(**options)
        stream = found.aio.models.generate_content_stream

        async def generate_content_stream(**request: Any) -> Any:
            try:
                return await stream(**request)
            except Exception as error:
                if is_lost(error):
                    raise _LostError(str(error)) from error
                raise

        found.aio.models.generate_content_stream = generate_content_stream
        return found

    return client
