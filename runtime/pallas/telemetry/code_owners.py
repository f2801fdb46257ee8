"""Which agents the files of a project's code belong to.

A thread that an agent's code starts has none of its context. What it prints belongs to the agent whose code
it runs, where that is the code of one agent alone.
"""

from collections.abc import Hashable, Iterable
from inspect import currentframe
from pathlib import Path
from types import FrameType
from typing import Final

_claims: Final[dict[Hashable, tuple[str, frozenset[str]]]] = {}
_agents: dict[str, str] = {}  # by file; empty where it is the code of several


def claim(owner: Hashable, agent: str, files: Iterable[Path]) -> None:
    """Note the files of an agent's code, absolute; ``owner`` names it among those of all fleets."""
    found = frozenset(map(str, files))
    if _claims.get(owner) != (agent, found):
        _claims[owner] = (agent, found)
        _collect()


def release(owner: Hashable) -> None:
    """Forget the files of an agent that has ended."""
    if _claims.pop(owner, None) is not None:
        _collect()


def agent_on_stack() -> str:
    """The agent whose code calls this; empty where no code does, or that of several agents.

    Code that is being imported belongs to the agent that it is imported for.
    """
    found = ""
    frame: FrameType | None = currentframe()
    while frame is not None:
        agent = _agents.get(frame.f_code.co_filename)
        if agent is None:
            agent = getattr(frame.f_builtins.get("__import__"), "agent", "")
        if agent:
            if found and found != agent:
                return ""
            found = agent
        frame = frame.f_back
    return found


def _collect() -> None:
    global _agents
    owners: dict[str, set[Hashable]] = {}
    for owner, (_, files) in tuple(_claims.items()):
        for file in files:
            owners.setdefault(file, set()).add(owner)
    _agents = {file: _claims[next(iter(of))][0] if len(of) == 1 else "" for file, of in owners.items()}
