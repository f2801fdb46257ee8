"""Which agent of a module, or of a folder of cards, an entry of agents.yaml serves."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .notes import allowed, did_you_mean


@dataclass(frozen=True, slots=True)
class AgentCandidate:
    """An agent that may be served, named as its code names it."""

    name: str
    is_default: bool = False
    is_tool_only: bool = False
    """It is for other agents alone: it is served only if an entry names it."""


@dataclass(frozen=True, slots=True)
class AgentChoice:
    """The agent that is chosen: empty if there is none. ``words`` are a problem and hints, or nothing."""

    name: str = ""
    words: tuple[str, ...] = ()
    key: str = "module"
    """The key of the entry that ``words`` are about."""


def choose(entry: str, wanted: str, candidates: Sequence[AgentCandidate], place: str) -> AgentChoice:
    """Return the agent that an entry serves: the one of its name, then ``agent:``, then the default.

    ``wanted`` is the entry's ``agent:``, empty if it has none; ``place`` is what defines the candidates.
    Upper case and separators of a name do not count, because an entry's name has no upper case or spaces. A
    choice without a name has a mistake in ``words``, any other a warning.
    """
    names = [each.name for each in candidates]
    if named := _of_name(entry, names):
        if wanted and _of_name(wanted, names) != named:
            problem = f"has no effect: {place} has an agent {named}, and the entry's name decides first"
            return AgentChoice(named, (problem, "give the entry another name, or leave agent out"), "agent")
        return AgentChoice(named)
    if wanted:
        if named := _of_name(wanted, names):
            return AgentChoice(named)
        problem = f"there is no agent {wanted} in {place}"
        return AgentChoice("", (problem, allowed(names), did_you_mean(wanted, names)), "agent")
    open_ = [each for each in candidates if not each.is_tool_only]
    default = next((each for each in open_ if each.is_default), None)
    chosen = default or next(iter((*open_, *candidates)), None)
    if chosen is None:
        return AgentChoice()
    if default is None and len(open_) > 1:
        problem = (
            f"{place} has several agents, and none is named {entry}: its first, {chosen.name}, is served"
        )
        hint = f"write `agent: NAME`, or name the entry after one of them: {', '.join(e.name for e in open_)}"
        return AgentChoice(chosen.name, (problem, hint))
    return AgentChoice(chosen.name)


def _of_name(name: str, names: Iterable[str]) -> str:
    """The one of ``names`` that is meant, empty for none."""
    among = list(names)
    if name in among:
        return name
    close = [each for each in among if _plain(each) == _plain(name)]
    return close[0] if len(close) == 1 else ""


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "-", name).strip("-").casefold()
