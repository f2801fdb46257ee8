"""What a fleet changes of its process when it starts, and the warnings that it starts with."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from pallas.model import ANONYMOUS, Notice
from pallas.safe_text import one_line
from pallas.surfaces.auth.inbound_auth import Inbound

from .context import FleetContext

_MAX_NAMED: Final = 20
_MAX_FAULTS: Final = 500


class WorkingFolder:
    """The working directory of this process, while a fleet has it."""

    def __init__(self) -> None:
        self._came_from: Path | None = None

    def enter(self, root: Path) -> None:
        """Go to the project's folder."""
        with suppress(OSError):  # the folder of before may be gone
            self._came_from = Path.cwd()
        os.chdir(root)

    def leave(self, root: Path) -> None:
        """Go back, unless other code has changed the directory since."""
        with suppress(OSError):  # either folder may be gone by now
            if self._came_from and Path.cwd().samefile(root):
                os.chdir(self._came_from)


def children_use_our_python() -> None:
    """Let ``command: python`` of a project mean the interpreter that runs Pallas."""
    ours = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if path.split(os.pathsep)[0] != ours:
        os.environ["PATH"] = ours + os.pathsep + path


def startup_notices(context: FleetContext, warnings: Iterable[str]) -> Iterator[Notice]:
    """Yield problems of the project that do not stop it, and who may call its agents."""
    for text in (*(each.sentence for each in context.project.warnings), *warnings):
        yield Notice(level="warning", text=text)
    if context.project.workers > 1 and context.options.worker is None:
        unused = f"workers: {context.project.workers} is not used here: this fleet is one process"
        yield Notice(level="info", text=unused)
    if faults := injected_faults(context):
        yield Notice(level="warning", text=f"faults are injected into calls of models and tools: {faults}")
    names = [each.name for each in context.served()]
    yield from _open_access_notices(context.inbound, context.options.bind, names)


def injected_faults(context: FleetContext) -> str:
    """The faults that are injected into calls, with the file that they are from; empty if none are."""
    faults = context.options.faults
    if faults is None or not faults.plan.rules:
        return ""
    return one_line(f"{faults.plan} ({faults.plan.source})", _MAX_FAULTS)


def is_loopback(bind: str) -> bool:
    """Whether only this machine reaches a port that is bound there."""
    try:
        return ip_address(bind).is_loopback
    except ValueError:
        return bind == "localhost"


def _open_access_notices(inbound: Inbound, bind: str, agents: Sequence[str]) -> Iterator[Notice]:
    """Warn of agents that any client beyond this machine may call, and report where auth is off."""
    if inbound.off_here():
        grants = ", and checks no grants; enabled: true under rbac: turns both on here as well"
        tokens = "; dev: true under auth: turns that on here as well"
        yield Notice(
            level="info",
            text="pallas dev on loopback asks no caller for a token"
            + (grants if inbound.grants.off_here else tokens),
        )
    anyone = inbound.grants.may_run
    asked_nothing = [name for name in agents if inbound.auth_of(name) is None and anyone(ANONYMOUS, name)]
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
