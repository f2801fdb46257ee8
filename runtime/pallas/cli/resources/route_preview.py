"""`pallas route`: the choice that a router would make, from the files and the running fleet."""

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from pallas.safe_text import one_line, sanitize

from .fleet_requests import (
    NO_FLEET,
    OK,
    REFUSED,
    USAGE,
    FleetLocation,
    Wrong,
    complain,
    fault_text,
    project_at,
)

if TYPE_CHECKING:
    from pallas.client import FleetAddress
    from pallas.config import AgentConfig, Project
    from pallas.config.kinds import RouteBy
    from pallas.routing.choice import Candidate, Choice

_TIMEOUT: Final = 5.0
_MAX_BODY: Final = 8 * 1024 * 1024
_SERVERS: Final = "/v0.1/servers"
_PUBLISHER: Final = "io.modelcontextprotocol.registry/publisher-provided"
_MAX_QUESTION: Final = 100_000


@dataclass(frozen=True, slots=True)
class RouteOptions:
    """The options; empty for those not given."""

    question: str
    capability: str = ""
    router: str = ""
    by: str = ""
    ask: str = ""
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class _RouteQuestion:
    """The candidates. ``fallback`` answers when none of them fits; ``notes`` are shown with the result."""

    candidates: tuple["Candidate", ...]
    by: "RouteBy"
    ask: str = ""
    fallback: "Candidate | None" = None
    live: bool = False
    notes: tuple[str, ...] = ()


def route(options: RouteOptions, reach: FleetLocation) -> int:
    """Print the chosen agent; returns the exit status: 1 when none fits, or a model could not be asked."""
    from pallas.client import NoFleetAnswers
    from pallas.config import ConfigError
    from pallas.model import Fault

    try:
        return asyncio.run(_route(options, reach))
    except NoFleetAnswers as fault:
        complain(f"{fault.message}; --by model asks an agent, and needs a fleet that runs")
        return NO_FLEET
    except Wrong as error:
        complain(f"pallas route: {error}")
        return USAGE
    except ConfigError as error:
        complain(str(error))
        return USAGE
    except Fault as fault:
        complain(fault_text(fault))
        return REFUSED
    except KeyboardInterrupt:
        return 130


async def _route(options: RouteOptions, reach: FleetLocation) -> int:
    from pallas.client import place_of
    from pallas.model import Fault
    from pallas.routing.choice import choose

    if not options.question.strip():
        raise Wrong("the question is empty")
    if len(options.question) > _MAX_QUESTION:
        raise Wrong(f"the question has {len(options.question)} characters; at most {_MAX_QUESTION}")
    project = await asyncio.to_thread(project_at, reach.folder)
    place = place_of(reach.url, project)
    question = _route_question(options, project, await _published(place))
    model_answer = await _said(options, question, place, reach) if question.by == "model" else None
    try:
        choice = choose(
            options.question,
            question.candidates,
            by=question.by,
            capability=options.capability or None,
            model_answer=model_answer,
            fallback=question.fallback,
        )
    except Fault as fault:
        _tell_no_choice(options, question, fault.message)
        return REFUSED
    _tell(options, question, choice)
    return OK


def _route_question(
    options: RouteOptions, project: "Project", live: Mapping[str, Mapping[str, Any]] | None
) -> _RouteQuestion:
    """Collect the candidates. Raises Wrong for unknown names, and for a method that cannot be used."""
    from pallas.config.kinds import RouteBy

    notes: list[str] = []
    by = "examples"
    known = {name: _candidate(config, project, live) for name, config in project.agents.items()}
    router = None
    if options.router:
        config = project.agents.get(options.router)
        router = config.router if config is not None else None
        if router is None:
            there = [name for name, each in project.agents.items() if each.router is not None]
            what = "is not a router" if config is not None else "is not in agents.yaml"
            raise Wrong(
                f"{one_line(options.router, 80)} {what}; there are {', '.join(there) or 'no routers'}"
            )
        by = router.by
        candidates = [known[name] for name in router.agents]
    else:
        candidates = [known[name] for name, each in project.agents.items() if each.kind != "router"]
        slugs = {each.slug for each in project.agents.values()}
        candidates += [
            _published_only(name, each) for name, each in (live or {}).items() if name not in slugs
        ]
    if options.by and options.by not in get_args(RouteBy):
        raise Wrong(f"--by {one_line(options.by, 40)}: allowed: {', '.join(get_args(RouteBy))}")
    if by == "model" and options.by != "model":
        notes.append(
            f"{options.router} asks {router.ask if router else ''}, which "
            "needs --by model; without it the examples decide"
        )
        by = "examples"
    ask = options.ask or (router.ask if router is not None else "")
    if options.by == "model" and not ask:
        raise Wrong("--by model needs --ask AGENT, or a --router that asks one")
    if live is None:
        notes.append(
            "no fleet of this project runs: the state of its agents is unknown, and only their files count"
        )
    fallback = known.get(router.fallback) if router is not None else None
    way = cast("RouteBy", options.by or by)
    return _RouteQuestion(tuple(candidates), way, ask, fallback, live is not None, tuple(notes))


def _candidate(
    config: "AgentConfig", project: "Project", live: Mapping[str, Mapping[str, Any]] | None
) -> "Candidate":
    from pallas.routing.choice import Candidate

    members = [project.agents[name] for name in config.router.agents] if config.router is not None else []
    candidate = Candidate(
        config.name,
        config.capabilities or tuple(word for each in members for word in each.capabilities),
        config.examples or tuple(text for each in members for text in each.examples),
        config.title,
        config.description,
    )
    if live is None:
        return candidate
    facts = live.get(config.slug)
    if facts is None:
        return replace(candidate, status="unavailable", reason="it is stopped, or not served")
    words = tuple(str(each) for each in _listed(facts.get("agentCapabilities")))
    return replace(_as_it_is(candidate, facts), capabilities=words or candidate.capabilities)


def _published_only(name: str, facts: Mapping[str, Any]) -> "Candidate":
    """Return a candidate that the files do not declare: created over the API, or registered by a program."""
    from pallas.routing.choice import Candidate

    words = tuple(one_line(str(each), 80) for each in _listed(facts.get("agentCapabilities")))
    title, about = str(facts.get("title") or ""), str(facts.get("description") or "")
    return _as_it_is(Candidate(one_line(name, 120), words, (), sanitize(title), sanitize(about)), facts)


def _as_it_is(candidate: "Candidate", facts: Mapping[str, Any]) -> "Candidate":
    from pallas.model import why_not

    status = facts.get("status")
    if status not in ("ready", "busy", "unavailable"):
        return candidate
    reason = why_not(one_line(str(facts.get("state") or status), 60)) if status == "unavailable" else ""
    return replace(candidate, status=status, reason=reason)


async def _published(place: "FleetAddress") -> dict[str, dict[str, Any]] | None:
    """Return the agents in the fleet's registry, by slug; None when no fleet of this project runs."""
    import httpx2

    from pallas.client.own_fleet import is_there

    if not await is_there(place):
        return None
    try:
        async with (
            httpx2.AsyncClient(
                timeout=_TIMEOUT, trust_env=not place.is_loopback, verify=place.trust()
            ) as http,
            http.stream("GET", place.origin + _SERVERS) as answer,
        ):
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BODY or answer.status_code != 200:
                    return None
        found: dict[str, dict[str, Any]] = {}
        for entry in json.loads(body)["servers"]:
            server = entry["server"]
            facts = server["_meta"][_PUBLISHER]
            shown = {"title": server.get("title"), "description": server.get("description")}
            found[str(server["name"]).rpartition("/")[2]] = {**shown, **facts}
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, LookupError, TypeError):
        return None
    return found


async def _said(
    options: RouteOptions, question: _RouteQuestion, place: "FleetAddress", reach: FleetLocation
) -> str | None:
    """Ask the deciding agent, and return its answer. Raises Fault."""
    from pallas.client import connect, token_of
    from pallas.routing.route_prompt import route_prompt

    able = [each for each in question.candidates if each.status != "unavailable"]
    if not able:
        return None
    token = token_of(reach.token) or os.environ.get("PALLAS_CONTROL_TOKEN", "").strip()
    async with connect(place, token) as api:
        document = await api.answer(question.ask, {"message": route_prompt(options.question, able)})
        if thread := document.get("threadId"):  # The thread is not continued.
            with suppress(Exception):
                await api.delete(f"/threads/{thread}")
    return str(document.get("text") or "")


def _tell(options: RouteOptions, question: _RouteQuestion, choice: "Choice") -> None:
    if options.as_json:
        print(
            json.dumps(
                {
                    "agent": choice.agent,
                    "by": choice.by,
                    "why": choice.why,
                    "others": [
                        {"agent": each.agent, "score": each.score, "why": each.why, "status": each.status}
                        for each in choice.others
                    ],
                    "leftOut": [{"agent": name, "reason": reason} for name, reason in choice.left_out],
                    "live": question.live,
                    "notes": list(question.notes),
                },
                indent=2,
                ensure_ascii=False,
            )
        )
        return
    print(sanitize(f"{choice.agent}  (by {choice.by})"))
    print(sanitize(f"  {choice.why}"))
    if choice.others:
        print("others:")
        width = max(len(each.agent) for each in choice.others)
        for each in choice.others:
            busy = "  busy" if each.status == "busy" else ""
            print(sanitize(f"  {each.agent:<{width}}  {each.score:.2f}  {each.why}{busy}".rstrip()))
    if choice.left_out:
        print("left out:")
        for name, reason in choice.left_out:
            print(sanitize(f"  {name}: {reason}"))
    for note in question.notes:
        complain(f"# {note}")


def _tell_no_choice(options: RouteOptions, question: _RouteQuestion, why: str) -> None:
    if options.as_json:
        body = {
            "agent": None,
            "why": why,
            "candidates": [
                {"agent": each.id, "status": each.status, "reason": each.reason}
                for each in question.candidates
            ],
            "live": question.live,
            "notes": list(question.notes),
        }
        print(json.dumps(body, indent=2, ensure_ascii=False))
        return
    complain(why)
    for note in question.notes:
        complain(f"# {note}")


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
