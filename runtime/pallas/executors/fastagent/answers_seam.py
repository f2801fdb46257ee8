"""Limits on the size of models' answers: the clients of the providers' libraries have none.

OpenAI's and Anthropic's libraries send requests with subclasses of httpx2's client; only those are limited,
wherever they are created. Google's library is given a limited client. ``tests/contract/test_mcp_seam.py``
fails when the wrapped code changes.
"""

from typing import Any, Final

import httpx2

from pallas.bounds.bodies import accept_bounded_encodings, bound_model
from pallas.mcp_client.library_hooks import Hook

_LIBRARIES: Final = frozenset({"openai", "anthropic"})


def _bounded(original: Any) -> Any:
    async def _send_single_request(self: Any, request: httpx2.Request) -> httpx2.Response:
        limited = any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(self).__mro__)
        if limited:
            accept_bounded_encodings(request)
        response: httpx2.Response = await original(self, request)
        if limited:
            bound_model(response)
        return response

    return _send_single_request


def bounded_google(original: Any) -> Any:
    """Wrap the function that returns the options of Google's client: adds a limited HTTP client."""

    def _google_http_options(
        self: Any, *, service_tier: Any = None, vertex_enabled: Any = False, timeout_seconds: Any = None
    ) -> Any:
        from google.genai.types import HttpOptions

        options = original(
            self, service_tier=service_tier, vertex_enabled=vertex_enabled, timeout_seconds=timeout_seconds
        )
        options = HttpOptions() if options is None else options
        options.httpx_async_client = _limited_client()
        return options

    return _google_http_options


GOOGLE: Final = ("self", "service_tier", "vertex_enabled", "timeout_seconds")
"""Parameters of what ``bounded_google`` wraps."""


def _limited_client() -> Any:
    async def before(request: httpx2.Request) -> None:
        accept_bounded_encodings(request)

    async def after(response: httpx2.Response) -> None:
        bound_model(response)

    # Google's library does not close a client that it is given: this one keeps no connection open.
    return httpx2.AsyncClient(
        timeout=None,
        follow_redirects=True,
        limits=httpx2.Limits(max_keepalive_connections=0),
        event_hooks={"request": [before], "response": [after]},
    )


HOOK: Final = Hook(
    "bounded-model-answers", httpx2.AsyncClient, "_send_single_request", ("self", "request"), _bounded
)
