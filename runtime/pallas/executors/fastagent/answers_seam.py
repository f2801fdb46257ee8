"""Limits on the size of models' answers for clients that the providers' libraries make themselves.

Our clients have these limits (``model_client``). OpenAI's and Anthropic's libraries send requests with
subclasses of httpx2's client; those are limited here, wherever they are created.
``tests/contract/test_mcp_seam.py`` fails when the wrapped code changes.
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


HOOK: Final = Hook(
    "bounded-model-answers", httpx2.AsyncClient, "_send_single_request", ("self", "request"), _bounded
)
