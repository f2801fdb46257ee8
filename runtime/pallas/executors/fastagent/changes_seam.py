"""``tools/list_changed``: a server's tools are listed again at most once a second, however often it
notifies.

fast-agent starts a task with a request for each of these notifications. ``tests/contract/test_hooks.py``
fails when the wrapped code changes.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

from fast_agent.mcp.client_callback_runtime import MCPClientCallbackRuntime

from pallas.mcp_client.library_hooks import Hook

# Seconds between two listings of a server that keeps changing.
_PAUSE: Final = 1.0


@dataclass(slots=True)
class _Listing:
    is_under_way: bool = False
    is_outdated: bool = False


# Keyed by the aggregator of an instance and the server's name.
_listings: Final[WeakKeyDictionary[Any, dict[str, _Listing]]] = WeakKeyDictionary()


def _once_at_a_time(original: Callable[..., Any]) -> Callable[..., Any]:
    async def notify_tool_list_changed(self: Any) -> None:
        if self.aggregator is None:
            await original(self)
            return
        listing = _listings.setdefault(self.aggregator, {}).setdefault(self.display_server_name, _Listing())
        listing.is_outdated = True
        if listing.is_under_way:
            return
        listing.is_under_way = True
        try:
            while listing.is_outdated:
                listing.is_outdated = False
                await original(self)
                await asyncio.sleep(_PAUSE)
        finally:
            listing.is_under_way = False

    return notify_tool_list_changed


HOOK: Final = Hook(
    "list-changed",
    MCPClientCallbackRuntime,
    "_notify_tool_list_changed",
    ("self",),
    _once_at_a_time,
)
