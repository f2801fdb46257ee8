"""Probes one MCP server, without a model or a tool, and without leaving a session open.

Supports both protocol versions: first ``server/discover``, which opens nothing; if that is not
understood, ``initialize``, then ``DELETE`` of the session. One deadline covers both.
"""

import asyncio
import logging
import re
import shlex
import shutil
import ssl
from collections.abc import MutableMapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx2

from pallas import __version__
from pallas.config.models import DownstreamConfig
from pallas.model import Downstream, ProbeResult
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .probe_request import NotMcp, ProbeResponse, ProbeSession, ask

log = logging.getLogger(__name__)

TIMEOUT: Final = 3.0
_MODERN: Final = "2026-07-28"
_HANDSHAKE: Final = "2025-11-25"
# Errors that only a server of the newer protocol returns: header mismatch, missing capability, version.
_MODERN_ERRORS: Final = frozenset({-32020, -32021, -32022})
_CLIENT: Final = {"name": "pallas-health", "version": __version__}
_META: Final = "io.modelcontextprotocol"
_DISCOVER: Final[dict[str, Any]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {
        "_meta": {
            f"{_META}/protocolVersion": _MODERN,
            f"{_META}/clientCapabilities": {},
            f"{_META}/clientInfo": _CLIENT,
        }
    },
}
_INITIALIZE: Final[dict[str, Any]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": _HANDSHAKE, "capabilities": {}, "clientInfo": _CLIENT},
}

Era = Literal["modern", "handshake"]
Eras = MutableMapping[str, Era]
Found = tuple[ProbeResult, str]


# Of a server or gateway that shows a login, hides itself, or wants another kind of request.
_REFUSAL: Final = re.compile(r"HTTP [1-4]\d\d\b")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one probe. It is not ``certain`` if the trouble may be momentary."""

    downstream: Downstream
    certain: bool = True

    @property
    def refuses_strangers(self) -> bool:
        """Whether the server has answered, but not as one that takes every caller."""
        return self.downstream.reach is not ProbeResult.OK and bool(_REFUSAL.match(self.downstream.detail))


def probe_client(verify: ssl.SSLContext | bool = True) -> httpx2.AsyncClient:
    """A client for probes: without kept connections, cookies, or a deadline of its own.

    ``verify`` is httpx2's. Building the default one reads the certificate store, so do it in a thread.
    """
    return httpx2.AsyncClient(
        verify=verify,
        timeout=None,
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        headers={"User-Agent": f"pallas-health/{__version__}"},
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
    )


def unprobed(config: DownstreamConfig) -> Downstream:
    """The downstream before its first probe. Its target holds no credentials."""
    if config.transport == "stdio":
        return Downstream(config.name, "stdio", one_line(redact_text(shlex.join(config.command)), 200))
    try:
        parts = urlsplit(config.url)
        target = parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    except ValueError:
        target = redact_text(config.url.partition("?")[0])
    return Downstream(config.name, "http", one_line(target, 200))


def found(config: DownstreamConfig, reach: ProbeResult, detail: str = "") -> Downstream:
    """The downstream with the result of a probe. ``detail`` is one line without secrets."""
    bare = unprobed(config)
    return Downstream(bare.name, bare.transport, bare.target, reach, one_line(redact_text(detail), 200))


async def probe(
    config: DownstreamConfig, client: httpx2.AsyncClient, eras: Eras, timeout_s: float = TIMEOUT
) -> Downstream:
    """The state of one downstream (PI-11 to PI-13). Never raises.

    An HTTP error, a refusal, or no answer within ``timeout_s`` seconds is ``unreachable``; 401 and 403 are
    ``auth required``, except for a server that gets the caller's own token (``forward_inbound_auth``): it
    rightly refuses a probe without one. ``eras`` remembers the protocol of each URL. A command counts as
    reached if it can be executed. Ending a session may take half a second more.
    """
    return (await look(config, client, eras, timeout_s)).downstream


async def look(
    config: DownstreamConfig, client: httpx2.AsyncClient, eras: Eras, timeout_s: float = TIMEOUT
) -> Finding:
    """As ``probe``, with whether the result is certain: silence and broken connections may be momentary."""
    if config.not_configured:
        return Finding(found(config, ProbeResult.NOT_CONFIGURED, config.not_configured))
    if config.transport == "stdio":
        return Finding(found(config, *_command(config.command)))
    opened: list[ProbeSession] = []
    certain = True
    try:
        async with asyncio.timeout(timeout_s):
            if config.transport == "sse":
                reach, detail = await _event_stream(config, client)
            else:
                reach, detail = await _streamable(config, client, eras, opened)
    except TimeoutError:
        certain = False
        reach, detail = ProbeResult.UNREACHABLE, f"no answer within {timeout_s:g} s"
    except NotMcp as error:
        reach, detail = ProbeResult.UNREACHABLE, str(error)
    except httpx2.ConnectError as error:
        reach, detail = ProbeResult.UNREACHABLE, f"cannot connect ({error})"
    except httpx2.HTTPError as error:
        certain = False
        reach, detail = ProbeResult.UNREACHABLE, f"the connection failed ({type(error).__name__})"
    except (httpx2.InvalidURL, ValueError, OSError) as error:
        reach, detail = ProbeResult.UNREACHABLE, f"its url or headers cannot be used ({type(error).__name__})"
    except Exception as error:
        log.exception("probing %s failed", config.name)
        reach, detail = ProbeResult.UNREACHABLE, f"the probe failed ({type(error).__name__})"
    finally:
        for session in opened:
            await session.end(client)
    if reach is ProbeResult.AUTH_REQUIRED and _awaits_caller(config, detail):
        return Finding(found(config, ProbeResult.OK, "asks for the caller's token"))
    return Finding(found(config, reach, detail), certain)


async def _streamable(
    config: DownstreamConfig, client: httpx2.AsyncClient, eras: Eras, opened: list[ProbeSession]
) -> Found:
    known = eras.pop(config.url, None)
    order: tuple[Era, Era] = ("handshake", "modern") if known == "handshake" else ("modern", "handshake")
    last: ProbeResponse | None = None
    broken: httpx2.HTTPError | None = None
    for era in order:
        try:
            answer = await _ask(config, client, era, opened)
        except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
            broken = error  # a server that hangs up on one protocol may speak the other
            continue
        if _is_evidence(era, answer):
            eras[config.url] = era
            return ProbeResult.OK, ""
        if answer.status in (401, 403):
            return ProbeResult.AUTH_REQUIRED, f"HTTP {answer.status}"
        if last is None or era == "handshake":
            last = answer
    if last is None and broken is not None:
        raise broken
    return ProbeResult.UNREACHABLE, _refusal(last)


async def _ask(
    config: DownstreamConfig, client: httpx2.AsyncClient, era: Era, opened: list[ProbeSession]
) -> ProbeResponse:
    headers = httpx2.Headers(config.headers)
    if era == "handshake":
        answer = await ask(client, config.url, _INITIALIZE, headers, opened)
        if answer.session:
            answer.session.version = str(answer.result.get("protocolVersion", ""))
        return answer
    modern = headers.copy()
    modern.update({"MCP-Protocol-Version": _MODERN, "Mcp-Method": "server/discover"})
    return await ask(client, config.url, _DISCOVER, modern, opened)


def _is_evidence(era: Era, answer: ProbeResponse) -> bool:
    if era == "handshake":
        return bool(answer.result)
    return "supportedVersions" in answer.result or answer.error_code in _MODERN_ERRORS


def _refusal(answer: ProbeResponse | None) -> str:
    if answer is None or not answer.accepted:
        return f"HTTP {answer.status}" if answer else "no answer"
    if answer.error_code is not None:
        return f"initialize was refused (error {answer.error_code})"
    return f"HTTP {answer.status}, but not as an MCP server answers"


async def _event_stream(config: DownstreamConfig, client: httpx2.AsyncClient) -> Found:
    """Probe the older HTTP+SSE transport, whose stream opens with a GET."""
    headers = httpx2.Headers(config.headers)
    headers["Accept"] = "text/event-stream"
    async with client.stream("GET", config.url, headers=headers, follow_redirects=False) as response:
        if response.status_code in (401, 403):
            return ProbeResult.AUTH_REQUIRED, f"HTTP {response.status_code}"
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if response.status_code == 200 and kind == "text/event-stream":
            return ProbeResult.OK, ""
        return ProbeResult.UNREACHABLE, f"HTTP {response.status_code}, without an event stream"


def _awaits_caller(config: DownstreamConfig, detail: str) -> bool:
    configured = any(name.lower() == "authorization" for name in config.headers)
    return config.forward_inbound_auth and not configured and detail == "HTTP 401"


def _command(command: tuple[str, ...]) -> Found:
    program = command[0] if command else ""
    if shutil.which(program):
        return ProbeResult.OK, ""
    if "/" in program:
        return ProbeResult.UNREACHABLE, f"{program} is not an executable file"
    return ProbeResult.UNREACHABLE, f"command {program!r} is not in PATH"
