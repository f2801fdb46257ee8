"""A separate connection to one MCP server, in either era, and an explanation if it fails."""

import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TextIO, cast

import httpx2
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED
from pydantic import ValidationError

from pallas.bounds.bodies import TooLarge
from pallas.config.models import DownstreamConfig
from pallas.downstreams.opening import Callbacks, Heard, Opener, Settings
from pallas.downstreams.result_fit import LeftOut, known_version, refusal
from pallas.downstreams.transports import Http, Link, Sse, StdioProgram, Transport
from pallas.downstreams.usable_lists import LISTS
from pallas.downstreams.usable_results import UsableResult, usable_result
from pallas.mcp_client import mcp_seam, stdio_seam
from pallas.model import Fault, FaultType
from pallas.model.fault import leaves_of
from pallas.model.redaction import redact_text
from pallas.processes.child_environment import program_environment
from pallas.safe_text import one_line
from pallas.telemetry.trace_context import current_agent

from .server_endpoint import ServerEndpoint

log = logging.getLogger(__name__)

# Bytes that are read of a program's last stderr output.
_TAIL: Final = 2_000
# How errors begin that Pallas itself puts in the place of an answer.
_NOT_TAKEN: Final = "the server's answer "


@asynccontextmanager
async def connected(
    endpoint: ServerEndpoint,
    bearer: str | None = None,
    left_out: list[LeftOut] | None = None,
    *,
    heard: Callable[[Any], Awaitable[None]] | None = None,
    ended: Callable[[], None] = lambda: None,
) -> AsyncIterator[Client]:
    """Yield a client of the server, connected as the project configures; closes it and its program
    afterwards.

    ``left_out`` gets what of its lists cannot be used, ``heard`` what the server notifies of; ``ended`` is
    called when a program has closed its output. ``bearer`` is sent only if the server opted in. Has no
    deadline: its owner cancels it, once. Raises Fault (UPSTREAM, CONFIG) with one line that names the
    problem and the place to fix it.
    """
    mcp_seam.install()
    stdio_seam.install()
    seen = _Seen(endpoint.config)
    found: list[LeftOut] = left_out if left_out is not None else []
    way = _transport(endpoint, endpoint.headers(bearer), seen)
    name = endpoint.config.name
    hears = Heard(partial(_read, found), heard or _hear_nothing, lambda client: ended())
    opener = Opener(name, way, Settings(mode=endpoint.mode), Callbacks(), hears, Link(one_line(name, 80)), {})
    try:
        async with opener.entered() as client:
            yield client
    except Exception as error:
        # An exception in the block comes out in groups: of the client's tasks, of the transport's.
        for leaf in leaves_of(error):
            if isinstance(leaf, Fault):
                raise leaf from leaf.__cause__
        log.debug("%s: the connection failed", endpoint.config.name, exc_info=error)
        raise seen.fault(error) from error
    finally:
        seen.close()


def _read(left_out: list[LeftOut], method: str, result: Any, version: str | None) -> UsableResult:
    """Make a result usable; what a server says wrong costs the thing that it is about."""
    made = usable_result(method, result, version)
    if method in LISTS:
        left_out.extend(made.findings)
    if made.result is None or not made.output_schemas:
        return made
    shown = {**made.result, "tools": [_whole(each, made.output_schemas) for each in made.result["tools"]]}
    # A person sees the schemas that the protocol allows.
    allowed = refusal(method, known_version(version), shown) is None
    return replace(made, result=shown) if allowed else made


async def _hear_nothing(message: Any) -> None: ...


def _whole(tool: dict[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    schema = schemas.get(tool["name"])
    return tool if schema is None else {**tool, "outputSchema": dict(schema)}


def _transport(endpoint: ServerEndpoint, headers: dict[str, str], seen: "_Seen") -> Transport:
    """How the server is reached, for one connection; ``seen`` explains its failure."""
    config = endpoint.config
    if config.transport == "stdio":
        program, *arguments = config.command
        env = program_environment(endpoint.env)
        cwd = str(endpoint.cwd) if endpoint.cwd is not None else None
        return StdioProgram(program, arguments, env, cwd, seen.stderr)
    if config.transport == "sse":
        return Sse(config.url, headers)
    return Http(
        config.url,
        headers,
        prepare=lambda client: client.event_hooks["response"].append(seen.answer),
        verify=True if endpoint.certificate is None else _trust(endpoint.certificate),
        trust_env=endpoint.certificate is None,
    )


def _trust(certificate: Path) -> ssl.SSLContext:
    """Trust this certificate only, under any host name."""
    trusted = ssl.create_default_context(cafile=certificate)
    trusted.check_hostname = False
    # It need not be a CA certificate.
    trusted.verify_flags = (trusted.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    return trusted


class _Seen:
    """Observations of one connection, to explain its failure."""

    def __init__(self, config: DownstreamConfig) -> None:
        self._config = config
        self._status: int | None = None
        self._errors: TextIO | None = None

    def stderr(self) -> TextIO:
        """Return a file for the program's stderr."""
        # A real file, since the program writes to its descriptor.
        self.close()  # that of a program which ended because it was asked for another version
        file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._errors = cast(TextIO, file)
        return self._errors

    async def answer(self, response: httpx2.Response) -> None:
        """Note the status of an answer."""
        # A server of the older era refuses unknown requests: its later answers decide.
        self._status = response.status_code

    def close(self) -> None:
        """Close the file."""
        if self._errors is not None:
            self._errors.close()

    def fault(self, error: BaseException) -> Fault:
        """Return the failure in one line, without secrets."""
        return Fault(FaultType.UPSTREAM, one_line(redact_text(self._reason(error)), 400))

    def _reason(self, error: BaseException) -> str:
        config, leaves = self._config, list(leaves_of(error))
        if self._status in (401, 403):
            return f"HTTP {self._status}: {_credentials(config)}"
        for leaf in leaves:
            if isinstance(leaf, FileNotFoundError | PermissionError | NotADirectoryError) and config.command:
                return (
                    f"{config.command[0]} cannot be started ({leaf.strerror}); correct it at {config.where}"
                )
            if isinstance(leaf, TooLarge):
                return f"{_NOT_TAKEN}was refused: {leaf}"
            if isinstance(leaf, httpx2.ConnectError):
                return f"cannot connect ({leaf}); is it running at the url of {config.where}?"
            if isinstance(leaf, httpx2.HTTPStatusError):
                return f"HTTP {leaf.response.status_code} at the url of {config.where}"
        ended = next((leaf for leaf in leaves if stdio_seam.was_ended(leaf)), None)
        if ended is not None:
            return str(ended)
        refusal = next((leaf for leaf in leaves if isinstance(leaf, MCPError)), None)
        if refusal is not None and refusal.message.startswith(_NOT_TAKEN):
            return refusal.message
        failed = self._status is not None and self._status >= 400
        if refusal is not None and refusal.code != CONNECTION_CLOSED and not failed:
            return f"it answered with an error: {refusal}"
        last = self._last_line() if self._errors is not None else ""
        if config.command and (how := stdio_seam.how_it_ended(current_agent(), one_line(config.name, 80))):
            return f"its program {how}" + (f": {last}" if last else "")
        if last:
            return f"its program ended: {last}"
        if failed:
            return f"HTTP {self._status} at the url of {config.where}"
        leaf = leaves[0] if leaves else error
        if isinstance(leaf, ValidationError):
            return f"its answer is not one of the protocol ({leaf.error_count()} mistakes in {leaf.title})"
        return f"the connection failed ({type(leaf).__name__}: {leaf})"

    def _last_line(self) -> str:
        assert self._errors is not None
        try:
            size = self._errors.seek(0, 2)
            self._errors.seek(max(0, size - _TAIL))
            lines = [line for line in self._errors.read().splitlines() if line.strip()]
        except (OSError, ValueError):
            return ""
        return one_line(lines[-1], 200) if lines else ""


def _credentials(config: DownstreamConfig) -> str:
    if config.unset:
        return f"it asks for credentials, and {', '.join(config.unset)} is not set (see {config.where})"
    if config.forward_inbound_auth:
        return "it asks for a caller's credentials; call it with a bearer token"
    return f"it refuses the credentials that {config.where} has for it, or there are none"
