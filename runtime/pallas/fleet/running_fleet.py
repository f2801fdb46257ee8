"""Finds out whether taken ports belong to a fleet of the same project that runs already."""

import os
import re
from contextlib import closing, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Final

from pallas.config import Project
from pallas.safe_text import one_line
from pallas.surfaces.control import BASE
from pallas.surfaces.control.control_api import EVERYWHERE
from pallas.surfaces.control.control_tokens import FULL_VARIABLE, VARIABLES, is_loopback
from pallas.surfaces.control.token_file import TokenFileExposed, find_project_tokens
from pallas.surfaces.port_holder import process_line

_HOLDER: Final = re.compile(r"\((process (\d+).*?, in (/[^)]*))\)")

_NO_TOKEN: Final = (
    "none is stored for this user: it was started with a token of its own, by another user, or with another "
    "XDG_STATE_HOME"
)
_ANSWER_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class OtherFleet:
    """A fleet of the project in another process."""

    text: str
    """What runs, in one line, and what to do where it cannot be attached to."""
    origin: str = ""
    """Where its control API is; empty if it has none, or no token for it is known."""


def running_fleet(project: Project, problem: str) -> OtherFleet | None:
    """Return the fleet of the project that has the ports which ``problem`` says are in use, if any."""
    port, why = project.registry_port, _NO_TOKEN
    bind = project.bind or ""
    host = "127.0.0.1" if bind in EVERYWHERE else f"[{bind}]" if ":" in bind else bind
    origin = f"http://{host}:{port}"
    is_taken = f"port {port} is in use" in problem
    try:
        for each in find_project_tokens(project.root) if is_taken else ():
            if each.port == port:
                return OtherFleet(f"it runs as {process_line(each.pid)}, at {origin}", origin)
    except (TokenFileExposed, OSError) as error:
        why = str(error)
    holders = [_HOLDER.search(line) for line in problem.splitlines()]
    first = holders[0] if holders else None
    here = one_line(str(project.root), 100)
    if first is None or any(each is None or each[2] != first[2] or each[3] != here for each in holders):
        return None
    if is_taken and _asks_for_token(host, port):
        if why is _NO_TOKEN and any(os.environ.get(name, "").strip() for name in VARIABLES):
            return OtherFleet(f"it runs as {first[1]}, at {origin}", origin)
        return OtherFleet(
            f"it runs as {first[1]}, at {origin}, and needs a token, but {why}. Put its token into "
            f"{FULL_VARIABLE} and run `pallas dev --attach {origin}`, or stop it (kill {first[2]}) and start "
            "the project here"
        )
    if is_taken and not is_loopback(host):
        return OtherFleet(
            f"it runs as {first[1]}, but has no control API to attach to, since it listens on {bind} and was "
            f"started without {FULL_VARIABLE}. Stop it (kill {first[2]}) and start it with that variable set "
            "(at least 16 characters), or start the project here"
        )
    return OtherFleet(
        f"it runs as {first[1]}, but has no control API to attach to, as with `pallas --agent NAME`. Talk to "
        f"its agents at their ports, or stop it (kill {first[2]}) and start the project here"
    )


def _asks_for_token(host: str, port: int) -> bool:
    """Whether a control API answers at that address of this machine; it refuses who has no token."""
    with (
        suppress(OSError, HTTPException),
        closing(HTTPConnection(host, port, timeout=_ANSWER_S)) as http,
    ):
        http.request("GET", f"{BASE}/snapshot")
        return http.getresponse().status == 401
    return False
