"""What a downstream may send at once: our clients take more than the 1 MiB that the SDK does unless told."""

from typing import Any, Final

from fast_agent.mcp import client_gateway

from . import hooks
from .hooks import Hook

# Bytes of one server-sent event, and so of one tool result.
MAX_EVENT: Final = 16 * 1024 * 1024


def _wrap(connect: Any) -> Any:
    def larger(
        url: str,
        *,
        http_client: Any = None,
        terminate_on_close: bool = True,
        max_sse_event_size: int | None = MAX_EVENT,
    ) -> Any:
        return connect(
            url,
            http_client=http_client,
            terminate_on_close=terminate_on_close,
            max_sse_event_size=max_sse_event_size,
        )

    return larger


LARGER_EVENTS: Final = Hook(
    name="max-sse-event",
    owner=client_gateway,
    attribute="streamable_http_client",
    parameters=("url", "http_client", "terminate_on_close", "max_sse_event_size"),
    wrap=_wrap,
)


def install() -> None:
    """Let every HTTP downstream send events up to ``MAX_EVENT`` bytes. Raises Fault (CONFIG)."""
    hooks.install(LARGER_EVENTS)
