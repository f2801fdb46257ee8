"""Opens the connection to a server: in the newer era if it takes that, by the handshake otherwise."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx2
from mcp import Client, MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    DiscoverResult,
    Implementation,
    SamplingCapability,
    SamplingToolsCapability,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from pallas import __version__
from pallas.mcp_client import stdio_seam
from pallas.model.fault import leaves_of

from .raw_streams import RawStreams, version_of
from .result_fit import as_json
from .transports import Link, Transport
from .usable_results import UsableResult

# How the SDK's error for a redirect to another origin begins.
_REDIRECT: Final = "Redirect to "


@dataclass(slots=True)
class Callbacks:
    """What the server may ask: each as the SDK's client takes it, or None if it is not offered."""

    elicitation: Any = None
    sampling: Any = None
    roots: Any = None


@dataclass(frozen=True, slots=True)
class Settings:
    """``mode`` is ``auto``, ``legacy`` or a modern version. ``ping_seconds`` is 0 for no pings.

    ``repeats``: a call that was not run because its session was lost is made once more. ``discovers``: also a
    server whose modern version is given is asked what it offers.
    """

    mode: str = "auto"
    read_timeout: float | None = None
    ping_seconds: float = 30.0
    missed_pings: int = 3
    repeats: bool = True
    discovers: bool = True
    implementation: Implementation = field(
        default_factory=lambda: Implementation(name="pallas", version=__version__)
    )


@dataclass(frozen=True, slots=True)
class Heard:
    """What takes what the server says.

    ``read`` makes its results usable, by method and version; ``message`` gets its notifications; ``ended`` is
    called when the other side has closed the connection, ``changed`` for notifications of changed lists that
    are too many to be passed on.
    """

    read: Callable[[str, Any, str | None], UsableResult]
    message: Any
    ended: Callable[[Client], None]
    changed: Callable[[], None] = lambda: None


class Opener:
    """Opens connections to one server, one after the other. ``eras`` remembers what it takes."""

    def __init__(
        self,
        name: str,
        transport: Transport,
        settings: Settings,
        callbacks: Callbacks,
        heard: Heard,
        link: Link,
        eras: dict[str, str],
    ) -> None:
        self._name = name
        self._transport = transport
        self._settings = settings
        self._callbacks = callbacks
        self._heard = heard
        self._link = link
        self._eras = eras
        self._failed_mode = ""
        self._version = ""  # that the server takes, if it refuses the newest one with a handshake

    @asynccontextmanager
    async def entered(self) -> AsyncIterator[Client]:
        """Enter a client, in the era that the server is known to take."""
        async with AsyncExitStack() as stack:
            client = await self._enter_somehow(stack)
            if self._settings.mode == "auto":
                is_modern = client.protocol_version in MODERN_PROTOCOL_VERSIONS
                self._eras[self._transport.key] = "auto" if is_modern else "legacy"
            self._failed_mode = ""
            yield client

    async def _enter_somehow(self, stack: AsyncExitStack) -> Client:
        modes = self._modes()
        is_doubted = self._failed_mode == modes[0] or not (self._failed_mode or self._known)
        for mode in modes:
            try:
                return await self._enter(stack, mode)
            except Exception as error:
                self._name_redirect(error)
                is_ended = self._is_ended_by_a_question(error)
                self._failed_mode = mode if is_ended else ""
                if not is_ended:  # it may be another server by now
                    self._eras.pop(self._transport.key, None)
                await stack.aclose()
                if not self._version and (version := offered_version(error)):
                    self._version = version
                    return await self._enter(stack, "legacy")
                is_other = is_doubted if is_ended else self._is_refused(mode, error)
                if mode is modes[-1] or not is_other:
                    raise
        raise AssertionError("unreachable")

    def _name_redirect(self, error: Exception) -> None:
        """Put the address that redirects into the SDK's error, which has the other one only."""
        for each in leaves_of(error):
            if isinstance(each, MCPError) and each.message.startswith(_REDIRECT):
                text = each.message.replace(_REDIRECT, f"{self._transport.key} redirects to ", 1)
                text = text.replace(" not followed", ", which is not followed", 1)
                each.error = each.error.model_copy(update={"message": text})
                each.args = (each.code, each.message, each.data)

    @property
    def _known(self) -> str:
        """The mode that the server took last; empty if that is not known."""
        return self._eras.get(self._transport.key, "")

    def _modes(self) -> tuple[str, ...]:
        """The ways to open the connection now, the likeliest first: each starts a program once."""
        if self._settings.mode != "auto":
            return (self._settings.mode,)
        if self._known == "legacy":
            return ("legacy", "auto")
        return ("auto", "legacy") if self._transport.is_program else ("auto",)

    async def _enter(self, stack: AsyncExitStack, mode: str) -> Client:
        raw: list[RawStreams] = []

        @asynccontextmanager
        async def streams() -> AsyncIterator[Any]:
            async with self._transport.open(self._link) as opened:
                raw.append(
                    RawStreams(
                        opened,
                        read=lambda method, result: self._heard.read(method, result, version_of(client)),
                        ended=lambda: self._heard.ended(client),
                        recorded="" if self._transport.writes_record else self._name,
                        version=self._version,
                        server=self._link.name,
                        changed=self._heard.changed,
                    )
                )
                try:
                    yield raw[0].incoming, raw[0].outgoing
                finally:
                    raw[0].close()

        sampling = self._callbacks.sampling
        client = Client(
            streams(),
            mode=mode,
            client_info=self._settings.implementation,
            read_timeout_seconds=self._settings.read_timeout,
            elicitation_callback=self._callbacks.elicitation,
            sampling_callback=sampling,
            sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()) if sampling else None,
            list_roots_callback=self._callbacks.roots,
            message_handler=self._heard.message,
            cache=None,
        )
        await stack.enter_async_context(client)
        if mode in MODERN_PROTOCOL_VERSIONS and self._settings.discovers:
            # The SDK asks for nothing where it is told the version.
            found = await client.session.send_discover(mode)
            client.session.adopt(DiscoverResult.model_validate(found))
        raw[0].stop_discovering()
        return client

    def _is_ended_by_a_question(self, error: BaseException) -> bool:
        """Whether a program ended, perhaps because it was asked for something that it does not know."""
        return self._transport.is_program and any(
            is_closed(each) and not stdio_seam.was_ended(each) for each in leaves_of(error)
        )

    def _is_refused(self, mode: str, error: BaseException) -> bool:
        """Whether a server has answered, but not as one of the era that it was opened in.

        A program that was asked for its versions was asked for the handshake too.
        """
        return (mode == "legacy" or not self._transport.is_program) and any(
            isinstance(each, httpx2.HTTPStatusError) or (isinstance(each, MCPError) and not is_closed(each))
            for each in leaves_of(error)
        )


def offered_version(error: Exception) -> str:
    """Return the newest of the older versions that a server names where it refuses ours; empty if none."""
    for each in leaves_of(error):
        if isinstance(each, MCPError) and "version" in each.message.lower():
            said = f"{each.message} {as_json(each.data)}"
            known = [version for version in HANDSHAKE_PROTOCOL_VERSIONS[:-1] if version in said]
            return known[-1] if known else ""
    return ""


def is_closed(error: BaseException) -> bool:
    """Return whether the SDK says that the connection is closed; servers use its number for other errors."""
    return (
        isinstance(error, MCPError)
        and error.code == CONNECTION_CLOSED
        and (error.message == "Connection closed" or stdio_seam.was_ended(error))
    )
