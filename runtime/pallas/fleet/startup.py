"""What is told at the start of who may call without being asked who they are."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from typing import Final

from pallas.model import ANONYMOUS, Notice
from pallas.model.safe_text import one_line
from pallas.surfaces.auth.inbound_auth import Inbound

_MAX_NAMED: Final = 20


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches what is bound there."""
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def openness(inbound: Inbound, bind: str, agents: Sequence[str]) -> Iterator[Notice]:
    """A warning that names the agents which anyone beyond this machine may call; a word where auth is off."""
    if inbound.off_here():
        grants = ", nor for grants; enabled: true under rbac: asks for both here as well"
        tokens = "; dev: true under auth: asks here as well"
        yield Notice(
            level="info",
            text="pallas dev on loopback asks nobody for tokens"
            + (grants if inbound.grants.off_here else tokens),
        )
    anyone = inbound.grants.may_run
    asked_nothing = [name for name in agents if inbound.asked(name) is None and anyone(ANONYMOUS, name)]
    if asked_nothing and not is_loopback(bind):
        yield Notice(
            level="warning",
            text=f"agents answer anyone who reaches {bind} and names an allowed host: there is no inbound "
            f"authentication for {_named(asked_nothing)}; write auth: in agents.yaml, set bind: 127.0.0.1, "
            "or put a gateway in front",
        )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return one_line(", ".join(names[:_MAX_NAMED]), 1_000) + more
