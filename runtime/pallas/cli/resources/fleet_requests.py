"""Find the fleet for a command, and turn its refusals into messages and exit statuses."""

import os
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pallas.safe_text import sanitize

if TYPE_CHECKING:
    from pallas.client import RestClient
    from pallas.config import Project
    from pallas.model import Fault

OK: Final = 0
REFUSED: Final = 1
"""The fleet refused, or it failed."""
USAGE: Final = 2
"""Wrong usage, or a project that cannot be read."""
NO_FLEET: Final = 3

CONTROL_VARIABLE: Final = "PALLAS_CONTROL_TOKEN"
_NO_SUCH: Final = re.compile(r"there is no (?P<kind>\w+) '(?P<name>[^']*)'|(?P<thing>\w+) not found\b")
_MOST_NAMES: Final = 200
_SHOWN_NAMES: Final = 20
_LAST: Final = "last"
"""In place of a run's id: the one that began last."""
HOW: Final = (
    "start the fleet of this project with `pallas --serve` or `pallas dev`, or name another one "
    "with --url http://host:port"
)


class Wrong(Exception):
    """The command cannot be done as typed; the message says why."""


class RefusedExit(Exception):
    """Ends the command with status 1; the message is already on stderr."""


@dataclass(frozen=True, slots=True)
class FleetLocation:
    """The fleet to use: that of the project in ``folder``, unless ``url`` or PALLAS_URL names another."""

    folder: Path
    url: str = ""
    token: str = field(default="", repr=False)


def run_with_fleet(
    reach: FleetLocation, work: Callable[["RestClient"], Awaitable[int]], *, starts: bool = False
) -> int:
    """Run ``work`` with the fleet's API; returns the exit status, after printing errors on stderr.

    Without a fleet the API is over its ledger, whose agents do not run. With ``starts`` a fleet is started
    for this call, and what ``work`` prints is not shown. Either way the API is our ``own``.
    """
    import asyncio

    from pallas.client import NoFleetAnswers
    from pallas.config import ConfigError
    from pallas.model import Fault

    try:
        status = asyncio.run(_with_client(reach, work, starts))
        sys.stdout.flush()
        return status
    except Wrong as error:
        complain(str(error))
        return USAGE
    except RefusedExit:
        return REFUSED
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except NoFleetAnswers as fault:
        complain(f"{fault.message}; {HOW}")
        return NO_FLEET
    except Fault as fault:
        complain(fault_text(fault))
        return REFUSED
    except BrokenPipeError:
        # The reader has seen enough (`| head`); the interpreter must not complain at exit.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130


async def run_named(api: "RestClient", name: str) -> str:
    """Return the id of a run; ``last`` is the one that began last. Raises Fault."""
    from pallas.model import Fault, FaultType

    if name != _LAST:
        return name
    async for each in api.items("/runs", most=1):
        return str(each.get("id"))
    raise Fault(FaultType.UPSTREAM, "there are no runs yet; ask an agent first: pallas chat")


def project_at(folder: Path) -> "Project":
    """Return the project in a folder, with its ``.env`` in the environment. Raises ConfigError."""
    from pallas.config import export_env, load_project

    export_env(folder)
    return load_project(folder)


def warn_of(title: str, body: object) -> None:
    """Print on stderr what may be wrong with something just created or changed."""
    if not isinstance(body, Mapping):
        return
    for key in ("warning", "problem"):
        if body.get(key):
            complain(f"{title}: warning: {body[key]}")
    if body.get("state") == "error":
        complain(f"{title}: warning: it is in error; see: pallas describe {title}")


def complain(text: str) -> None:
    """Print lines on stderr, without terminal control characters."""
    print(sanitize(text), file=sys.stderr)


def problem_text(error: Exception) -> str:
    """Return an error as a line for people: of a file that the system refuses, which one and what to do."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        why = error.strerror[:1].lower() + error.strerror[1:]
        return f"{error.filename}: cannot be read or written: {why}; correct that, or name another place"
    return str(error)


def fault_text(fault: "Fault") -> str:
    """Return a Fault as a line for people: the problem and its key."""
    key = str(fault.data.get("key") or "")
    # Faults of parameters already name the key.
    named = fault.message.startswith((key, key.rpartition(".")[2]))
    head = f"{key}: " if key and not named else ""
    return head + fault.message


async def explained(api: "RestClient", fault: "Fault") -> str:
    """Return ``fault_text``; that of a name that is not there also says which there are, the nearest first.

    The names are those that the caller may list.
    """
    from difflib import get_close_matches

    from pallas.model import Fault

    from .resource_kinds import KINDS, how_to_list

    text = fault_text(fault)
    found = _NO_SUCH.match(fault.message) if fault.data.get("reason") == "not_found" else None
    if found is None or not (command := how_to_list(kind := found["kind"] or found["thing"])):
        return text
    if found["name"] is None:
        return f"{text}; `{command}` lists them"
    known: list[str] = []
    with suppress(Fault):
        known = [str(each.get("name")) async for each in api.items(KINDS[kind].path, most=_MOST_NAMES)]
    if not known:
        return f"{text}; there is none yet (`{command}`)"
    near = get_close_matches(found["name"], known, len(known), 0.6)
    names = [*near, *(each for each in known if each not in near)]
    shown = ", ".join(names[:_SHOWN_NAMES]) + (", …" if len(names) > _SHOWN_NAMES else "")
    joint = " Known" if text.endswith("?") else "; known"
    return f"{text}{joint} {KINDS[kind].plural}: {shown}; `{command}` lists them"


async def _own(project: "Project", token: str, stack: AsyncExitStack) -> "RestClient":
    """Start a fleet that ends with ``stack``, and return its API."""
    from pallas.cli.quiet_output import quietly
    from pallas.client import connect
    from pallas.client.fleet_address import FleetAddress
    from pallas.client.own_fleet import own_fleet

    complain(f"# no fleet of {project.name} runs: one is started for this call")
    told: list[str] = []
    stack.callback(lambda: complain("\n".join(told)) if told else None)
    stack.enter_context(quietly(project))
    origin = await stack.enter_async_context(own_fleet(project, "", told.append))
    api = await stack.enter_async_context(connect(FleetAddress(origin, project.root), token))
    api.own = True
    return api


async def _with_client(
    reach: FleetLocation, work: Callable[["RestClient"], Awaitable[int]], starts: bool
) -> int:
    import asyncio

    from pallas.client import URL_VARIABLE, NoFleetAnswers, connect, place_named, place_of, token_of
    from pallas.client.own_fleet import is_there
    from pallas.model import Fault

    named = reach.url.strip() or os.environ.get(URL_VARIABLE, "").strip()
    project = None if named else await asyncio.to_thread(project_at, reach.folder)
    token = token_of(reach.token)
    if project is None:
        place = await asyncio.to_thread(place_named, reach.url, reach.folder)
    else:
        place = place_of(project=project)
    if project is not None and place.is_loopback and not token:
        # A user in the folder may use the token that the fleet was started with.
        token = os.environ.get(CONTROL_VARIABLE, "").strip()
    if token and place.in_the_clear:
        complain("# warning: the token goes to another machine unencrypted; use `ssh -L`, or TLS")
    async with AsyncExitStack() as stack:
        if project is None or await is_there(place):
            api = await stack.enter_async_context(connect(place, token))
        elif starts:
            api = await _own(project, token, stack)
        else:
            from .offline_api import offline

            api = await stack.enter_async_context(offline(project, place))
            complain(f"# no fleet of {project.name} runs: this is from its ledger")
        try:
            return await work(api)
        except NoFleetAnswers:
            raise
        except Fault as fault:
            complain(await explained(api, fault))
            return REFUSED
