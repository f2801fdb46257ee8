"""The fleet behind the bridge: the running one, another client's, or one started for this client."""

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from pallas.client.fleet_address import FleetAddress, place_of
from pallas.client.own_fleet import is_anothers, own_fleet
from pallas.config import ConfigError, Project
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

log = logging.getLogger(__name__)

Whose = Literal["running", "shared", "own"]

_LOOK: Final = 3.0
_LOOK_AGAIN: Final = 1.0


class BridgeTarget:
    """The fleet that requests go to. ``listening`` is set once it answers, ``started`` once its agents do.

    ``whose`` says which it is: one that runs by itself, one started for another client of the same project,
    or our own. ``fault`` says why there will be no fleet; both events are set then as well.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.place: FleetAddress | None = None
        self.whose: Whose = "running"
        self.fault: Fault | None = None
        self.listening = asyncio.Event()
        self.started = asyncio.Event()
        self.lost = asyncio.Event()

    def at(self, place: FleetAddress, whose: Whose) -> None:
        """Set the fleet's address."""
        self.place, self.whose = place, whose
        self.listening.set()

    def failed(self, fault: Fault) -> None:
        """Record that there is no fleet, and will be none."""
        self.fault = fault
        self.listening.set()
        self.started.set()

    def lose(self, place: FleetAddress) -> bool:
        """Record that the fleet at ``place`` no longer answers; return whether to look for another one.

        Another one is looked for when the fleet ended with the client that it was started for.
        """
        if self.place is not place:  # Another request has noticed before.
            return True
        if self.whose != "shared":
            return False
        self.place = None
        self.listening.clear()
        self.started.clear()
        self.lost.set()
        return True


async def provide_fleet(
    target: BridgeTarget,
    project: Project | None,
    url: str,
    stop: asyncio.Event,
    *,
    tell: Callable[[str], None],
) -> None:
    """Find or start the fleet, and keep one of our own until ``stop``; never raises Fault."""
    try:
        while not stop.is_set():
            target.lost.clear()
            await _find(target, project, url, stop, tell)
            await _either(stop.wait(), target.lost.wait())
    except Exception as problem:
        fault = _why(problem)
        tell(fault.message)
        target.failed(fault)
    await stop.wait()


def _why(problem: Exception) -> Fault:
    if isinstance(problem, Fault):
        return problem
    if isinstance(problem, ConfigError):
        return Fault(FaultType.CONFIG, sanitize(str(problem), 2_000))
    log.error("the fleet could not be started", exc_info=problem)
    kind = type(problem).__name__
    return Fault(FaultType.INTERNAL, f"the fleet could not be started ({kind}); the log has the details")


async def _find(
    target: BridgeTarget, project: Project | None, url: str, stop: asyncio.Event, tell: Callable[[str], None]
) -> None:
    if url or project is None:
        target.at(place_of(url, project), "running")
        target.started.set()
        return
    name = one_line(project.name, 60)
    if await runs(place := place_of(project=project, environ={})):
        tell(f"using the fleet of {name} at {place.origin}")
        target.at(place, "running")
        target.started.set()
    elif (shared := await _shared(project.root)) is not None:
        tell(f"using the fleet of {name} that another client started")
        target.at(shared, "shared")
        target.started.set()
    else:
        tell(f"no fleet of {name} runs: it is started for this client")
        await _own(target, project, stop, tell)


async def _own(
    target: BridgeTarget, project: Project, stop: asyncio.Event, tell: Callable[[str], None]
) -> None:
    begun: list[str] = []

    def has_begun(origin: str) -> None:
        begun.append(origin)
        target.at(FleetAddress(origin, project.root), "own")

    async def other() -> FleetAddress:
        """Return a fleet that another client started at the same time, on the ports that ours waits for."""
        while True:
            await asyncio.sleep(_LOOK_AGAIN)
            if not begun and (found := await _shared(project.root)) is not None:
                return found

    entering = own_fleet(project, "", tell, has_begun)
    start = asyncio.ensure_future(entering.__aenter__())
    others = asyncio.ensure_future(other())
    asked = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({start, others, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not start.done():  # During its start: the tasks it began are ended there.
            start.cancel()
            await asyncio.wait({start})
            if others.done() and not asked.done():
                tell("another client has started one in the meantime: using that")
                target.at(others.result(), "shared")
                target.started.set()
            return
        start.result()
    finally:
        others.cancel()
        asked.cancel()
    target.started.set()
    tell(f"the fleet of {one_line(project.name, 60)} has started")
    try:
        with _told(project.root, begun[0]):
            await stop.wait()
    finally:
        await entering.__aexit__(None, None, None)


def _folder() -> Path:
    """Return the folder where fleets started for a client are recorded, for the user's other clients."""
    from pallas.surfaces.control.token_file import token_folder

    return token_folder().with_name("bridge")


@contextmanager
def _told(root: Path, origin: str) -> Iterator[None]:
    """Within the block, other clients of the project find this fleet."""
    from pallas.surfaces.control.token_file import TokenFileExposed, remove_token, store_token

    note: Path | None = None
    with suppress(TokenFileExposed, OSError):  # Then they start one of their own.
        note = store_token("", root, urlsplit(origin).port or 0, _folder())
    try:
        yield
    finally:
        if note is not None:
            remove_token(note, "")


async def _shared(root: Path) -> FleetAddress | None:
    """Return the fleet that another client of the project started, if it exists and takes requests."""
    from pallas.surfaces.control.token_file import TokenFileExposed, find_project_tokens

    with suppress(TokenFileExposed, OSError):
        for each in find_project_tokens(root, _folder()):
            place = FleetAddress(f"http://127.0.0.1:{each.port}", root)
            if each.pid != os.getpid() and await runs(place):
                return place
    return None


async def runs(place: FleetAddress) -> bool:
    """Return whether a fleet of the project, and not of another one, answers at that address."""
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


def no_answer(target: BridgeTarget, fault: Fault) -> Fault:
    """Return the same Fault, with what to do when a running fleet no longer answers."""
    if target.whose == "own":
        return fault
    text = f"{fault.message}: the fleet does not answer (any more); start it again, or restart this bridge"
    return Fault(FaultType.TRANSPORT, text, data={**fault.data, "stage": "connect"})


async def _either(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until one of them is over, and cancel the others."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
