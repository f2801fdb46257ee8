"""`pallas connect`: print the configuration that connects an MCP client to an agent."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pallas.catalog.spec_fields import slug
from pallas.safe_text import one_line

from .fleet_requests import NO_FLEET, OK, USAGE, FleetLocation, Wrong, complain, project_at
from .mcp_clients import CLIENTS, ServerEntry

if TYPE_CHECKING:
    from pallas.client import FleetAddress
    from pallas.config import Project

_TIMEOUT: Final = 3.0
_MAX_BODY: Final = 4 * 1024 * 1024
_SERVERS: Final = "/v0.1/servers"
_BRIDGES: Final = ("command", "url")
_BRIDGE_PATH: Final = "/mcp"
_RUN_TIMEOUT: Final = 1800  # Seconds; the default of agents of a remote fleet.
_PING: Final = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
_ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """The options. ``project`` names one of the fleet's projects and means all its agents.

    ``bridge`` is how the client reaches the single endpoint of all agents: ``command``, ``url``, or empty for
    none.
    """

    agent: str = ""
    client: str = "generic"
    virtual: bool = False
    project: str = ""
    bridge: str = ""


def connect(options: ConnectOptions, reach: FleetLocation) -> int:
    """Print the snippet on stdout and what to do with it on stderr; returns the exit status.

    It needs only the project's files and its ledger, which holds the agents created over the API. It never
    contains a token, only the name of the variable that holds it.
    """
    from pallas.client import NoFleetAnswers
    from pallas.config import ConfigError
    from pallas.model import Fault

    try:
        if options.client not in CLIENTS:
            raise Wrong(f"--client {options.client[:40]}: allowed: {', '.join(CLIENTS)}")
        if options.project and (options.agent or options.virtual):
            raise Wrong("--project is all agents of a project at one address: leave AGENT and --virtual out")
        if options.bridge and options.bridge not in _BRIDGES:
            raise Wrong(f"--bridge {one_line(options.bridge, 40)}: allowed: {', '.join(_BRIDGES)}")
        if options.bridge and (options.agent or options.virtual or options.project):
            raise Wrong("--bridge is all agents at once: leave AGENT, --virtual and --project out")
        targets = _targets(options, reach)
    except NoFleetAnswers as fault:
        complain(fault.message)
        return NO_FLEET
    except (Wrong, ConfigError, Fault) as error:
        complain(f"pallas connect: {error}" if isinstance(error, Wrong) else str(error))
        return USAGE
    client = CLIENTS[options.client]
    print(client.text(targets))
    sys.stdout.flush()
    for line in (f"{client.title}: {client.words(targets)[0]}", *client.words(targets)[1:]):
        complain(f"# {line}")
    if not (options.agent or options.virtual or options.project or options.bridge) and len(targets) > 1:
        complain("# one entry instead of all these: pallas connect --bridge command, or --bridge url")
    return OK


def _targets(options: ConnectOptions, reach: FleetLocation) -> list[ServerEntry]:
    from pallas.client import URL_VARIABLE, place_of

    named = reach.url.strip() or os.environ.get(URL_VARIABLE, "").strip()
    project = None if named else project_at(reach.folder)
    place = place_of(reach.url, project)
    published = _published(place, needed=project is None)
    if options.project and published is not None:
        _check_project(place, options.project)
    if project is not None:
        return _of_project(options, project, published)
    assert published is not None
    return _of_fleet(options, place, published)


def _check_project(place: "FleetAddress", name: str) -> None:
    """Raise Wrong when the running fleet has no project of that name."""
    try:
        there = _http(place, "POST", f"{place.origin}/projects/{_part(name)}/mcp", _PING)[0] != 404
    except OSError:
        return  # No fleet runs: a client that uses the address will find out.
    if not there:
        raise Wrong(f"there is no project {one_line(name, 60)}; see: pallas get projects")


def _of_project(
    options: ConnectOptions, project: "Project", published: Mapping[str, str] | None
) -> list[ServerEntry]:
    """Return the addresses from agents.yaml, for the agents that the fleet publishes if it runs."""
    from pallas.surfaces.published_agent import AGENTS, base_url, resource_url

    base = base_url(project)
    if options.bridge == "command":
        return [_bridge(options, base, project)]
    asked = project.rbac is not None and project.rbac.enabled is not False
    if options.project or (options.virtual and not options.agent):
        name = options.project or project.name
        auth = project.auth is not None and not project.auth.off
        return [ServerEntry(name, f"{base}/projects/{_part(name)}/mcp", asked or auth)]
    if published is None:
        complain("# no fleet of this project runs: these are the addresses that it will have")
    if options.bridge:
        return [_bridge(options, base, project)]
    found: dict[str, ServerEntry] = {}
    for agent in project.agents.values():
        auth = agent.auth is not None and not agent.auth.off
        url = resource_url(project, agent)
        found[agent.name] = ServerEntry(agent.name, url, asked or auth, agent.run_timeout)
    known = {slug(name) for name in project.agents}
    auth = project.auth is not None and not project.auth.off
    for name in _made(project, published):
        if name not in known:
            found[name] = ServerEntry(name, f"{base}/{AGENTS}/{_part(name)}/mcp", asked or auth)
    return _chosen(options, found, base)


def _made(project: "Project", published: Mapping[str, str] | None) -> list[str]:
    """Return the agents created over the API: those that the fleet publishes, else those in its ledger."""
    if published is None:
        from pallas.client.own_fleet import made_agents

        return list(asyncio.run(made_agents(project)) or ())
    names = [(full, full.rpartition("/")[2]) for full in published]
    return [name for full, name in names if full == f"{project.namespace}/{name}"]


def _of_fleet(
    options: ConnectOptions, place: "FleetAddress", published: Mapping[str, str]
) -> list[ServerEntry]:
    """Return the addresses that a remote fleet publishes."""
    if options.bridge:
        return [_bridge(options, place.origin, None, token=_asks(place, place.origin + _BRIDGE_PATH))]
    if options.project:
        url = f"{place.origin}/projects/{_part(options.project)}/mcp"
        return [ServerEntry(options.project, url, _asks(place, url))]
    if options.virtual and not options.agent:
        raise Wrong("--virtual needs AGENT with --url; --project NAME is all agents of a project")
    found = {name.rpartition("/")[2]: url for name, url in published.items()}
    chosen = [options.agent] if options.agent else list(found)
    token = {name: _asks(place, found[name]) for name in chosen if name in found}
    targets = {name: ServerEntry(name, url, token.get(name, False)) for name, url in found.items()}
    return _chosen(options, targets, place.origin)


def _bridge(
    options: ConnectOptions, base: str, project: "Project | None", *, token: bool = False
) -> ServerEntry:
    """Return the single endpoint of all agents.

    For a project it names the folder: a fleet is started if none runs.
    """
    seconds = _RUN_TIMEOUT
    if project is not None:
        token = (project.auth is not None and not project.auth.off) or (
            project.rbac is not None and project.rbac.enabled is not False
        )
        seconds = max((agent.run_timeout for agent in project.agents.values()), default=seconds)
    name = f"{project.name}-fleet" if project is not None else "fleet"
    where = ("--url", base) if project is None else ("--project", str(project.root.absolute()))
    command = (_program(), "bridge", *where) if options.bridge == "command" else ()
    return ServerEntry(name, base + _BRIDGE_PATH, token, seconds, command)


def _program() -> str:
    """This very program by its whole path: a program of a desktop that starts it may have another PATH."""
    own = Path(sys.argv[0])
    if own.name == "pallas" and own.is_file():
        return str(own.absolute())
    return shutil.which("pallas") or "pallas"


def _chosen(options: ConnectOptions, found: Mapping[str, ServerEntry], base: str) -> list[ServerEntry]:
    if not options.agent:
        if not found:
            raise Wrong("the fleet has no agents")
        return list(found.values())
    slugs = {slug(name): name for name in found}
    name = options.agent if options.agent in found else slugs.get(slug(options.agent))
    if name is None:
        raise Wrong(f"there is no agent {one_line(options.agent, 60)}; there are {', '.join(sorted(found))}")
    target = found[name]
    if options.virtual:
        url = f"{base}/virtual/agent-{_part(name)}/mcp"
        return [ServerEntry(f"agent-{name}", url, target.token, target.seconds)]
    return [target]


def _published(place: "FleetAddress", *, needed: bool) -> dict[str, str] | None:
    """Names and addresses in the fleet's registry; None where none answers and none is needed."""
    from pallas.client import NoFleetAnswers

    try:
        status, body = _http(place, "GET", place.origin + _SERVERS)
        entries = json.loads(body)["servers"] if status == 200 else None
        if entries is not None:
            servers = [entry["server"] for entry in entries]
            return {str(each["name"]): str(each["remotes"][0]["url"]) for each in servers}
    except (OSError, ValueError, LookupError, TypeError):
        pass
    if needed:
        raise NoFleetAnswers(f"no registry of a fleet answers at {place.origin}; see --url")
    return None


def _asks(place: "FleetAddress", url: str) -> bool:
    """Whether what is there wants to know who calls; False where that cannot be found out."""
    try:
        return _http(place, "POST", url, _PING)[0] == 401
    except OSError:
        return False


def _http(place: "FleetAddress", method: str, url: str, document: Any = None) -> tuple[int, bytes]:
    """Status and body. Raises OSError."""
    import httpx2

    try:
        with httpx2.Client(
            timeout=_TIMEOUT, trust_env=not place.is_loopback, verify=place.trust(), follow_redirects=False
        ) as http:
            request = http.build_request(
                method, url, json=document, headers=_ACCEPT if document is not None else None
            )
            answer = http.send(request, stream=True)
            body = b""
            for chunk in answer.iter_bytes():
                body += chunk
                if len(body) > _MAX_BODY or answer.status_code != 200:
                    break
            answer.close()
            return answer.status_code, body
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(str(error)) from error


def _part(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
