"""`pallas delete`: things that go, after a question where a person is there to answer it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pallas.model.safe_text import one_line

from .fleet_requests import OK, REFUSED, USAGE, FleetLocation, ask, complain, told
from .resource_kinds import DELETABLE, KindInfo, NoSuchKind, split

if TYPE_CHECKING:
    from pallas.client import RestClient


def delete(words: Sequence[str], yes: bool, reach: FleetLocation) -> int:
    """Delete each; the status is 1 where one was refused, the others are gone then."""
    try:
        wanted = split(list(words), DELETABLE)
    except NoSuchKind as error:
        complain(f"pallas delete: {error}")
        return USAGE
    if not all(name for _, name in wanted):
        complain(f"pallas delete: say which {wanted[0][0].word}")
        return USAGE
    if not yes and sys.stdin.isatty() and not _sure(wanted):
        complain("nothing was deleted")
        return REFUSED

    async def work(api: "RestClient") -> int:
        return max([await _one(api, kind, name) for kind, name in wanted])

    return ask(reach, work)


def _sure(wanted: Sequence[tuple[KindInfo, str]]) -> bool:
    names = ", ".join(f"{kind.word}/{one_line(name, 80)}" for kind, name in wanted)
    threads = " and all its threads" if any(kind.word == "agent" for kind, _ in wanted) else ""
    print(f"Delete {names}{threads}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


async def _one(api: "RestClient", kind: KindInfo, name: str) -> int:
    from pallas.client import NoFleetAnswers
    from pallas.client.rest_client import part
    from pallas.model import Fault

    try:
        await api.delete(f"{kind.path}/{part(name)}")
    except NoFleetAnswers:
        raise
    except Fault as fault:
        complain(f"{kind.word}/{name}: {told(fault)}")
        return REFUSED
    print(f"{kind.word}/{name} deleted")
    return OK
