"""Finds out whether taken ports belong to a fleet of the same project that runs already."""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pallas.config import Project
from pallas.safe_text import one_line
from pallas.surfaces.control.token_file import TokenFileExposed, find_project_tokens
from pallas.surfaces.port_holder import process_line

_HOLDER: Final = re.compile(r"\((process (\d+).*?, in (/[^)]*))\)")


@dataclass(frozen=True, slots=True)
class OtherFleet:
    """A fleet of the project in another process."""

    text: str
    """What runs, in one line, and what to do where it cannot be attached to."""
    origin: str = ""
    """Where its control API is; empty if it has none."""


def running_fleet(project: Project, problem: str) -> OtherFleet | None:
    """Return the fleet of the project that has the ports which ``problem`` says are in use, if any."""
    port = project.registry_port
    with suppress(TokenFileExposed, OSError):
        if f"port {port} is in use" in problem:
            for each in find_project_tokens(project.root):
                if each.port == port:
                    origin = f"http://127.0.0.1:{port}"
                    return OtherFleet(f"it runs as {process_line(each.pid)}, at {origin}", origin)
    holders = [_HOLDER.search(line) for line in problem.splitlines()]
    first = holders[0] if holders else None
    here = one_line(str(project.root), 100)
    if first is None or any(each is None or each[2] != first[2] or each[3] != here for each in holders):
        return None
    return OtherFleet(
        f"it runs as {first[1]}, but has no control API to attach to, as with `pallas --agent NAME`. Talk to "
        f"its agents at their ports, or stop it (kill {first[2]}) and start the project here"
    )
