"""What a server's entry under ``mcp.servers`` makes of its connection."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
from fast_agent.home import build_child_environment
from fast_agent.mcp.hf_auth import add_forwarded_hf_auth_header
from mcp_types import ListRootsResult, Root
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import FileUrl

from pallas.access.sent_credential import configured_credential
from pallas.downstreams.opening import Settings
from pallas.downstreams.transports import Http, Sse, StdioProgram, Transport
from pallas.executors.faults.fault_injection import FaultInjection, Send
from pallas.executors.faults.faulty_transport import make_faulty
from pallas.executors.replay.replay import current_replay
from pallas.processes.child_environment import program_environment

from .auth_seam import downstream_auth
from .forward_trace import current_hop

_MODES: Final = {"modern": LATEST_MODERN_VERSION, "legacy": "legacy"}


def transport_of(name: str, entry: Any, registry: Any) -> Transport:
    """Return how a server is reached. In a replay that is a recording of it.

    Raises ValueError for an entry without a command or an address.
    """
    if (replay := current_replay()) is not None:
        if (url := replay.plan.agents_at.get(name)) is not None:
            entry = entry.model_copy(update={"url": url})
        elif not replay.plan.is_live(name):
            # Imports the SDK's server, which other fleets may not need.
            from pallas.executors.replay.recorded_servers import Recorded

            return Recorded(replay, name)
    if entry.transport == "stdio":
        if not entry.command:
            raise ValueError(f"server {name} has no command")
        env = build_child_environment(
            active_home=registry.active_home,
            no_home=registry.no_home,
            base=program_environment({}),
            overrides=entry.env,
        )
        return StdioProgram(entry.command, tuple(entry.args or ()), env, entry.cwd)
    if not entry.url:
        raise ValueError(f"server {name} has no url")
    headers = _headers(entry)
    auth = downstream_auth(name, entry, headers)
    if entry.transport == "sse":
        return Sse(entry.url, headers, auth, float(entry.read_transport_sse_timeout_seconds))
    return Http(entry.url, headers, auth, _timeout(entry), _prepare)


def settings_of_entry(entry: Any) -> Settings:
    """Return the settings of a server's connection."""
    read = entry.read_timeout_seconds
    given = {"implementation": entry.implementation} if entry.implementation is not None else {}
    return Settings(
        _MODES.get(entry.protocol_mode, "auto"),
        float(read) if read is not None else None,
        float(max(0, entry.ping_interval_seconds)),
        entry.max_missed_pings,
        entry.reconnect_on_disconnect,
        **given,
    )


def roots_callback(entry: Any) -> Callable[[Any], Any] | None:
    """Return what answers a server that asks for its roots; None if its entry names none."""
    if not entry.roots:
        return None
    roots = [Root(uri=FileUrl(each.server_uri_alias or each.uri), name=each.name) for each in entry.roots]

    async def list_roots(context: Any) -> ListRootsResult:
        return ListRootsResult(roots=roots)

    return list_roots


def _headers(entry: Any) -> Mapping[str, str]:
    headers = dict(entry.headers or {})
    forwards = entry.auth is not None and entry.auth.forward == "huggingface"
    if forwards and not configured_credential(headers):
        headers = add_forwarded_hf_auth_header(entry.url, headers) or {}
    return headers


def _timeout(entry: Any) -> httpx2.Timeout:
    return httpx2.Timeout(entry.http_timeout_seconds or 30, read=entry.http_read_timeout_seconds or 300)


def _prepare(client: httpx2.AsyncClient) -> None:
    make_faulty(client, _inject)


async def _inject(
    injection: FaultInjection, tool: str, request: httpx2.Request, send: Send
) -> httpx2.Response:
    return await injection.send_call(current_hop()[0], tool, request, send)
