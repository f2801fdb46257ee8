"""An answer that is sent whole, below any web framework."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from starlette.types import Scope, Send

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


async def answer(
    scope: Scope,
    send: Send,
    status: int,
    body: bytes,
    headers: Mapping[str, str] = _NONE,
    *,
    media_type: str = "application/json",
) -> None:
    """Send ``body``; a HEAD request gets its headers alone. Browsers must not guess another media type."""
    lines = {
        "content-type": media_type,
        "content-length": str(len(body)),
        "x-content-type-options": "nosniff",
        **headers,
    }
    raw = [(name.encode(), value.encode()) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


async def answer_json(
    scope: Scope, send: Send, status: int, document: Any, headers: Mapping[str, str] = _NONE
) -> None:
    """Send ``document`` as JSON."""
    await answer(scope, send, status, json.dumps(document).encode(), headers)
