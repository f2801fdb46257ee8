"""The connection to a control API. It reconnects after a loss and resumes where it broke off."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from pallas.model import (
    Attachment,
    Event,
    Fault,
    FaultType,
    FleetSnapshot,
    Health,
    HealthChanged,
    TokenScope,
)
from pallas.model.operations import READ_ONLY

from .fleet_address import as_reached, is_loopback_url, place_of
from .fleet_mirror import FleetMirror
from .token_source import TokenSource

if TYPE_CHECKING:
    from .control_client import ControlClient, StreamMessage

TOLERANCE: Final = 2.0
"""Seconds that clocks may differ before times are shifted: the network may take that long."""

FIRST_CONNECTION_S: Final = 3.0
"""Seconds for the first connection."""
BACKOFF: Final = (0.2, 5.0)
"""Seconds between two tries: the first pause and the longest."""
LATE_S: Final = 18.0
"""Seconds without an answer after which the picture is late: the fleet sends a comment every 10 s."""
_REFUSED_FOR_GOOD: Final = 3


def skew_of(here: float, there: float) -> float:
    """Seconds to add to a remote time; 0 within the tolerance."""
    return here - there if abs(here - there) > TOLERANCE else 0.0


def shift_event(event: Event, skew: float) -> Event:
    """The event with its time on this clock."""
    if not skew:
        return event
    if isinstance(event, HealthChanged):
        return replace(event, at=event.at + skew, health=_health(event.health, skew))
    return replace(event, at=event.at + skew)


def shift_snapshot(snapshot: FleetSnapshot, skew: float) -> FleetSnapshot:
    """The snapshot with its times on this clock, except that of a downstream's last call."""
    if not skew:
        return snapshot
    agents = tuple(
        replace(
            agent,
            since=agent.since + skew,
            health=_health(agent.health, skew),
            restart_at=_moved(agent.restart_at, skew),
        )
        for agent in snapshot.agents
    )
    servers = tuple(
        replace(server, since=server.since + skew, restart_at=_moved(server.restart_at, skew))
        for server in snapshot.servers
    )
    watch = snapshot.watch
    if watch is not None:
        last = replace(watch.last, at=watch.last.at + skew) if watch.last is not None else None
        watch = replace(watch, since=watch.since + skew, last=last)
    return replace(snapshot, since=snapshot.since + skew, agents=agents, servers=servers, watch=watch)


def _moved(at: float | None, skew: float) -> float | None:
    return None if at is None else at + skew


def _health(health: Health, skew: float) -> Health:
    return replace(health, since=health.since + skew, checked_at=health.checked_at + skew)


class FleetConnection:
    """Keeps ``mirror`` up to date with the fleet at ``origin`` while ``hold`` runs, in one event loop.

    ``client`` is None while there is no connection. ``timer`` returns seconds that only grow.
    """

    def __init__(
        self,
        origin: str,
        tokens: TokenSource,
        mirror: FleetMirror,
        *,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        self.origin = origin
        self.client: ControlClient | None = None
        self._tokens = tokens
        self._mirror = mirror
        self._boot = ""
        self._last_id = ""
        self._skew = 0.0
        self._timer = timer
        self._attachment: Attachment | None = None
        self._heard = (0.0, 0.0)

    @property
    def attachment(self) -> Attachment | None:
        """How the fleet is attached now; None before the first connection. Safe from any thread."""
        heard, heard_at = self._heard
        if self._attachment is None:
            return None
        if self.client is None:
            return replace(self._attachment, lost_at=heard_at)
        silent = self._timer() - heard
        return replace(self._attachment, late=int(silent)) if silent >= LATE_S else self._attachment

    def _hear(self) -> None:
        # By the clocks of this machine alone: that of the fleet may differ.
        self._heard = self._timer(), time()

    async def hold(self) -> None:
        """Stay connected until cancelled, or until another try would not help."""
        began, pause, refused = monotonic(), BACKOFF[0], 0
        while True:
            try:
                problem, hopeless = await self._connect(), False
                pause = BACKOFF[0]
            except Fault as fault:
                problem, hopeless = fault.message, fault.type is FaultType.CONFIG
            if not self._boot and (hopeless or monotonic() - began > FIRST_CONNECTION_S):
                self._mirror.fail(f"{self.origin}: {problem}" if self.origin not in problem else problem)
                return
            if self._boot:
                # A fleet that ends removes its token before it closes its port: one refusal is no news.
                refused = refused + 1 if hopeless else 0
                self._mirror.connection_lost(
                    f"connection lost, trying again: {problem}", report_again=refused >= _REFUSED_FOR_GOOD
                )
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 2, BACKOFF[1])

    async def _connect(self) -> str:
        """Connect and follow the fleet; returns why it ended. Raises Fault, CONFIG if a retry is no use."""
        from .control_client import ControlClient, NoControlApi, TokenRejected

        tokens = await asyncio.to_thread(self._tokens.candidates)
        for token in tokens:
            client = ControlClient(self.origin, token)
            try:
                return await self._follow(client)
            except TokenRejected:
                continue
            except NoControlApi as error:
                raise Fault(FaultType.CONFIG, str(error)) from None
            finally:
                self.client = None
                await client.close()
        await self._is_there()
        raise Fault(FaultType.CONFIG, f"the fleet at {self.origin} needs a token: {self._tokens.advice()}")

    async def _is_there(self) -> None:
        """Raise Fault for a wrong address, which comes before the advice to look for a token."""
        from .control_client import ControlClient, NoControlApi, TokenRejected

        client = ControlClient(self.origin, "")
        try:
            await client.get("/snapshot")
        except TokenRejected:
            return
        except NoControlApi as error:
            raise Fault(FaultType.CONFIG, str(error)) from None
        finally:
            await client.close()

    async def _follow(self, client: "ControlClient") -> str:
        document = await client.get("/snapshot")
        self._hear()
        self._greet(document)
        self.client = client
        async with client.stream(self._last_id, self._hear) as messages:
            async for message in messages:
                self._take(message)
                if message.kind == "bye":
                    return "the fleet was stopped"
        return "the fleet closed the connection"

    def _greet(self, document: Any) -> None:
        """Take the first snapshot, of the fleet as before or started again. Raises Fault for others."""
        boot = document.get("boot") if isinstance(document, dict) else None
        if not isinstance(boot, str) or "snapshot" not in document:
            raise Fault(FaultType.PROTOCOL, f"what answers at {self.origin} is not a fleet")
        there = document.get("now")
        self._skew = skew_of(time(), float(there)) if isinstance(there, int | float) else 0.0
        again, restarted = bool(self._boot), bool(self._boot) and boot != self._boot
        if restarted:
            self._last_id = ""
            # It is not known what happened before it ended: panes check again what they took for running.
            self._mirror.add_events([], lost=1)
        self._boot = boot
        access = next((each for each in TokenScope if each == document.get("access")), TokenScope.READ)
        self._mirror.can_control = access is TokenScope.FULL
        since = self._attachment.since if self._attachment is not None else time()
        self._attachment = Attachment(place_of(self.origin, document.get("owner")), since, access)
        self._see(document["snapshot"])
        if again:
            self._mirror.notify(
                "info", "connected again" + (": the fleet was started again" if restarted else "")
            )
        else:
            self._first_words()

    def _first_words(self) -> None:
        if not self._mirror.can_control:
            self._mirror.notify("info", READ_ONLY)
        if self.origin.startswith("http:") and not is_loopback_url(self.origin):
            self._mirror.notify(
                "warning",
                "the token goes to another machine unencrypted; use `ssh -L`, or TLS in front of the fleet",
            )

    def _take(self, message: "StreamMessage") -> None:
        from pallas.model import codec

        if message.kind == "snapshot":
            self._see(message.document)
        elif message.kind == "events" and isinstance(message.document, dict):
            dropped, events = message.document.get("dropped"), message.document.get("events")
            try:
                found = [codec.decode_event(each) for each in events] if isinstance(events, list) else []
            except codec.Undecodable as error:
                raise _not_understood(error) from error
            here = [shift_event(event, self._skew) for event in found if event is not None]
            self._mirror.add_events(here, dropped if isinstance(dropped, int) and dropped > 0 else 0)
        if message.id:
            self._last_id = message.id

    def _see(self, document: Any) -> None:
        snapshot = shift_snapshot(decoded(FleetSnapshot, document), self._skew)
        self._mirror.set_snapshot(as_reached(snapshot, self.origin))


def decoded(kind: Any, document: Any) -> Any:
    """The value of ``kind`` that came as JSON. Raises Fault PROTOCOL."""
    from pallas.model import codec

    try:
        return codec.decode(kind, document)
    except codec.Undecodable as error:
        raise _not_understood(error) from error


def _not_understood(error: Exception) -> Fault:
    return Fault(
        FaultType.PROTOCOL,
        f"the fleet answered something that cannot be read ({error}); is its Pallas of another version?",
    )
