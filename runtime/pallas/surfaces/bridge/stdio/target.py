"""The fleet that is spoken to: the one that runs, else one that is started for this client alone."""

import asyncio
from collections.abc import Callable
from typing import Final

from pallas.api_client.own import is_anothers, own_fleet
from pallas.api_client.place import Place, place_of
from pallas.config import Project
from pallas.model import Fault, FaultType
from pallas.text import one_line

_LOOK: Final = 3.0


class Target:
    """Where requests go. ``listening`` is set once something answers there, ``started`` once agents do.

    ``fault`` says why there will be no fleet; both are set then as well.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.place: Place | None = None
        self.own = False
        self.fault: Fault | None = None
        self.listening = asyncio.Event()
        self.started = asyncio.Event()

    def at(self, place: Place) -> None:
        """It is there."""
        self.place = place
        self.listening.set()

    def failed(self, fault: Fault) -> None:
        """There is none, and will be none."""
        self.fault = fault
        self.listening.set()
        self.started.set()


async def keep(
    target: Target,
    project: Project | None,
    url: str,
    stop: asyncio.Event,
    *,
    tell: Callable[[str], None],
) -> None:
    """Find or start the fleet, and keep one of our own until ``stop``; never raises Fault."""
    try:
        if url or project is None:
            target.at(place_of(url, project))
            target.started.set()
        elif await runs(place := place_of(project=project, environ={})):
            tell(f"the fleet of {one_line(project.name, 60)} that runs at {place.origin} is spoken to")
            target.at(place)
            target.started.set()
        else:
            target.own = True
            await _own(target, project, stop, tell)
    except Fault as fault:
        tell(fault.message)
        target.failed(fault)
    await stop.wait()


async def _own(target: Target, project: Project, stop: asyncio.Event, tell: Callable[[str], None]) -> None:
    def begun(origin: str) -> None:
        target.at(Place(origin, project.root))

    tell(f"no fleet of {one_line(project.name, 60)} runs: it is started for this client")
    entering = own_fleet(project, "", tell, begun)
    start = asyncio.ensure_future(entering.__aenter__())
    asked = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({start, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():  # in the middle of its start: what was begun is ended where it waits
            start.cancel()
            await asyncio.wait({start})
            return
        start.result()
    finally:
        asked.cancel()
    target.started.set()
    tell(f"the fleet of {one_line(project.name, 60)} is there")
    try:
        await stop.wait()
    finally:
        await entering.__aexit__(None, None, None)


async def runs(place: Place) -> bool:
    """Whether a fleet of ours answers at the fleet's port of the project, and none of another project."""
    import httpx2

    if is_anothers(place):
        return False
    try:
        async with httpx2.AsyncClient(trust_env=False, verify=place.trust(), timeout=_LOOK) as http:
            answer = await http.get(f"{place.origin}/healthz")
            found = answer.json() if len(answer.content) < 1_000_000 else None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError):
        return False
    return isinstance(found, dict) and found.get("status") == "ok" and "providers" in found


def no_answer(target: Target, fault: Fault) -> Fault:
    """The same Fault, with what to do where a fleet that ran does not answer any more."""
    if target.own or target.place is None:
        return fault
    text = f"{fault.message}: the fleet is not there (any more); start it again, or restart this bridge"
    return Fault(FaultType.TRANSPORT, text, data={**fault.data, "stage": "connect"})
