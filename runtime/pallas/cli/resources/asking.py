"""A command's way to the fleet: where it is, what it refuses, and the exit status that says so."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.text import sanitize

if TYPE_CHECKING:
    from pallas.api_client import Api
    from pallas.config import Project
    from pallas.model import Fault

OK: Final = 0
REFUSED: Final = 1
"""The fleet said no, or it failed."""
USAGE: Final = 2
"""Wrong words on the command line, or a project that cannot be read."""
NO_FLEET: Final = 3

HOW: Final = (
    "start the fleet of this project with `pallas --serve` or `pallas dev`, or say where another one is "
    "with --url http://host:port"
)


class Wrong(Exception):
    """Something on the command line cannot be done as it is written; the message says why."""


class Refused(Exception):
    """It was told on stderr already; the status is 1."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Which fleet is meant: that of the project in ``folder`` unless ``url`` or PALLAS_URL names another."""

    folder: Path
    url: str = ""
    token: str = field(default="", repr=False)


def ask(reach: Reach, work: Callable[["Api"], Awaitable[int]]) -> int:
    """Do ``work`` with the API of the fleet; returns the exit status, having said on stderr what is wrong."""
    from pallas.api_client import NoFleet
    from pallas.config import ConfigError
    from pallas.model import Fault

    try:
        return asyncio.run(_ask(reach, work))
    except Wrong as error:
        complain(str(error))
        return USAGE
    except Refused:
        return REFUSED
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except NoFleet as fault:
        complain(f"{fault.message}; {HOW}")
        return NO_FLEET
    except Fault as fault:
        complain(told(fault))
        return REFUSED
    except BrokenPipeError:
        # Whoever read it has seen enough (`| head`); the interpreter must not say so at its end.
        with suppress(OSError):
            sys.stdout.close()
        return OK
    except KeyboardInterrupt:
        return 130


def project_at(folder: Path) -> "Project":
    """The project in a folder. Raises ConfigError."""
    from pallas.config import load_project

    return load_project(folder)


def complain(text: str) -> None:
    """Lines on stderr, with nothing in them that drives a terminal."""
    print(sanitize(text), file=sys.stderr)


def told(fault: "Fault") -> str:
    """A Fault as a line for people: what is wrong, at which key."""
    key = str(fault.data.get("key") or "")
    # Faults of parameters name the key themselves.
    head = f"{key}: " if key and not fault.message.startswith(key.rpartition(".")[2]) else ""
    return head + fault.message


async def _ask(reach: Reach, work: Callable[["Api"], Awaitable[int]]) -> int:
    import os

    from pallas.api_client import URL_VARIABLE, connect, place_of, token_of

    named = reach.url.strip() or os.environ.get(URL_VARIABLE, "").strip()
    project = None if named else await asyncio.to_thread(project_at, reach.folder)
    async with connect(place_of(reach.url, project), token_of(reach.token)) as api:
        return await work(api)
