"""An ``organism.yaml`` merged into an ``agents.yaml``: what both say is a mistake."""

from collections.abc import Mapping
from dataclasses import replace

from .agents import Draft
from .agents_file import AgentsFile
from .kinds import LlmRouting, PumpLimits
from .llm_section import routing_of
from .notes import Notes
from .organism import Organism
from .section import Section
from .tree import Leaf


def with_listeners(
    agents: Mapping[str, Draft], organism: Organism, file: str, notes: Notes
) -> Mapping[str, Draft]:
    """``agents`` and the listeners; a name that both have is a mistake that tells both places (UN-6)."""
    for name, draft in organism.agents.items():
        if name in agents:
            other = f"agents.{name} ({agents[name].config.where})"
            notes.error(
                draft.config.where, draft.path, f"{name} is the name of {other} too", "give one another name"
            )
    if not organism.agents and not agents:
        notes.error(
            organism.where("listeners"),
            "listeners",
            "names no listener",
            f"required: at least one, here or under agents: of {file}"
            if file != organism.file
            else "required: at least one, for example `- {name: greeter, handler: …, payload_class: …}`",
        )
    listeners = {name: each for name, each in organism.agents.items() if name not in agents}
    gateways = organism.gateways - agents.keys() - listeners.keys()
    return {
        **agents,
        **{name: _without_gateways(each, gateways, notes) for name, each in listeners.items()},
    }


def _without_gateways(draft: Draft, gateways: frozenset[str], notes: Notes) -> Draft:
    """The listener without peers that are gateways alone: nothing serves them here, which is warned of."""
    known_peers = []
    for peer, where in draft.peers:
        if peer not in gateways:
            known_peers.append((peer, where))
            continue
        notes.warn(
            where,
            f"{draft.path}.peers",
            f"{peer} is a gateway, and messages to it are not delivered",
            f"for an agent elsewhere write {peer} into agents.yaml, `kind: remote`",
        )
    if len(known_peers) == len(draft.peers):
        return draft
    config = replace(draft.config, peers=tuple(peer for peer, _ in known_peers))
    return replace(draft, config=config, peers=tuple(known_peers))


def messages_of(given: AgentsFile, organism: Organism | None) -> PumpLimits:
    """``messages:`` of either file."""
    own, top = given.messages or PumpLimits(), given.at
    if organism is None or organism.limits is None:
        return own
    if "messages" not in top:
        return organism.limits
    _both(top, organism, "messages", next(key for key in organism.places or {} if "max_concurrent" in key))
    return own


def llm_of(given: AgentsFile, organism: Organism | None, variables: Mapping[str, str]) -> LlmRouting:
    """``llm:`` of either file."""
    own, top = routing_of(given.llm, variables), given.at
    if organism is None or organism.llm is None:
        return own
    if "llm" not in top:
        return organism.llm
    keys = ("llm", "llm_backends", "organism.max_tokens_per_thread")
    _both(top, organism, "llm", next(key for key in keys if key in (organism.places or {})))
    return own


def warn_of_own(organism: Organism, top: Section) -> None:
    """Together with an ``agents.yaml`` that says how the project is called and where it listens."""
    for key in ("name", "version", "port"):
        place, entry = organism.where(f"organism.{key}"), organism.own.get(key)
        if not place.line or entry is None or not isinstance(entry.node, Leaf):
            continue
        overriding = top.table.get(key)
        if isinstance(overriding, Leaf) and overriding.value == entry.node.value:
            continue
        top.notes.warn(
            place,
            f"organism.{key}",
            "is not used",
            f"{top.where.file} sets it"
            if overriding is not None
            else f"{top.where.file} is the project's file; write {key}: there",
        )


def _both(top: Section, organism: Organism, key: str, theirs: str) -> None:
    top.notes.error(
        organism.where(theirs),
        theirs,
        f"is also set in {top.place(key)}, by {key}:",
        "keep one of them",
    )
