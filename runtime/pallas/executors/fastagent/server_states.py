"""The connections of all instances of one agent to its servers, as its health has them."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal

from pallas.downstreams.connection import Connection, end_notes
from pallas.downstreams.opening import is_closed
from pallas.model import ServerConnection
from pallas.model.redaction import redact_text
from pallas.safe_text import one_line

from .instance_servers import Missing, Servers
from .listed_servers import ListedServers

type Checked = Literal["", "answers", "silent", "failed"]
type Found = tuple[Checked, str]
"""What a check has found, and how it failed."""

_UNCHECKED: Final[Found] = ("", "")
_ANSWERS: Final[Found] = ("answers", "")


class ServerStates:
    """``instances`` gives the servers of each instance, ``forwarded`` whether one gets the caller's bearer.

    ``listed`` knows what they list. Belongs to the loop of the instances.
    """

    def __init__(
        self,
        instances: Callable[[], Iterable[Servers]],
        listed: ListedServers,
        forwarded: Callable[[str], bool],
    ) -> None:
        self._instances = instances
        self._listed = listed
        self._forwarded = forwarded
        self._checked: dict[str, Found] = {}

    def all(self, unconfigured: Collection[str]) -> tuple[ServerConnection, ...]:
        """Return each server that an instance has, or lacks; without the ``unconfigured`` ones."""
        connections, missing = self._connections(), self._missing()
        names = sorted({*connections, *missing} - {*unconfigured})
        found = (self._state(name, connections.get(name, []), missing.get(name, [])) for name in names)
        return tuple(each for each in found if each is not None)

    async def check(self, server: str, seconds: float) -> None:
        """Ask a server once, over a connection that is open, whether it answers within ``seconds``.

        Only if it does not, it is asked over the others; if none is open, it is connected. One that needs a
        caller's bearer is not asked.
        """
        if self._forwarded(server):
            return
        if live := [each for each in self._connections().get(server, []) if each.is_open]:
            self._checked[server] = await _check(live, seconds)
            return
        self._checked.pop(server, None)
        if attempts := [task for each in self._instances() if (task := each.retried(server)) is not None]:
            await asyncio.wait(attempts, timeout=seconds)

    def _state(
        self, server: str, connections: list[Connection], missing: list[Missing]
    ) -> ServerConnection | None:
        live = [each for each in connections if each.is_open]
        if not live and not missing:  # connected on demand
            return None
        listed, name = self._listed[server], one_line(server, 80)
        checked, error = self._checked.get(server, _UNCHECKED) if live else _UNCHECKED
        since = min((each.since for each in live), default=0.0)
        if missing and not live:
            error = _words(missing[-1])
            since = max((each.since for each in connections), default=0.0)
        failed = missing if live else []
        if is_forwarded := self._forwarded(server):
            # An instance without a caller's bearer waits for one, and has not failed.
            failed = [each for each in failed if each.refused is not None and each.refused[1] == "forwarded"]
        return ServerConnection(
            server=name,
            is_open=bool(live),
            since=since,
            error=one_line(error, 300),
            version=one_line(listed.version, 40),
            tools=listed.tools,
            left_out=listed.left_out,
            left_out_count=listed.left_out_count,
            problem=one_line(listed.problem, 600) if live else "",
            checked=checked,
            needs_caller=is_forwarded,
            open_count=len(live),
            failed_count=len(failed),
            failure=one_line(_words(failed[-1]), 300) if failed else "",
            failed_at=max((each.failed_at for each in connections), default=0.0) if failed else 0.0,
        )

    def _connections(self) -> dict[str, list[Connection]]:
        found: dict[str, list[Connection]] = {}
        for servers in self._instances():
            for name, connection in servers.connections():
                found.setdefault(name, []).append(connection)
        return found

    def _missing(self) -> dict[str, list[Missing]]:
        found: dict[str, list[Missing]] = {}
        for servers in self._instances():
            for name, why in servers.missing().items():
                found.setdefault(name, []).append(why)
        return found


def _words(missing: Missing) -> str:
    return missing.why + (f" ({missing.detail})" if missing.detail else "")


async def _check(connections: list[Connection], seconds: float) -> Found:
    """Ask over the first, and over the others for the rest of the time if that gets no answer."""
    first, *others = connections
    found = await _ask(first, seconds / 2 if others else seconds)
    if found == _ANSWERS or not others:
        return found
    rest = await asyncio.gather(*(_ask(each, seconds / 2) for each in others))
    return _ANSWERS if _ANSWERS in rest else found


async def _ask(connection: Connection, seconds: float) -> Found:
    try:
        return _ANSWERS if await connection.answers(seconds) else ("silent", "")
    except Exception as error:
        ended = connection.end if is_closed(error) else ""
        text = ended or "; ".join(end_notes(error)) or str(error) or type(error).__name__
        return "failed", one_line(redact_text(text), 200)
