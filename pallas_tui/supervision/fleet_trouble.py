"""The current problem for the top line: the worst and newest one, until it is solved."""

from dataclasses import dataclass, replace
from typing import Final

from pallas.model import AgentSnapshot, AgentState, FleetSnapshot, ServerSnapshot

from ..text import count, duration
from .reload_history import History
from .reload_words import error_of, name_of, outcome_word

LINGERS: Final = 8.0
"""Seconds for which a new problem is shown instead of the current one."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One line; ``at`` (Unix seconds) is when it began. ``agent`` is whom it is about, if any.

    Not ``grave`` is what waits for a person.
    """

    text: str
    at: float
    agent: str = ""
    grave: bool = True


def trouble_of(snapshot: FleetSnapshot, history: History) -> Trouble | None:
    """The one to show, with how many others there are; None when nothing stands wrong."""
    found = [*_loops(history), *_crashing(snapshot), *_broken(history)]
    if not found:
        return None
    first = found[0]
    if len(found) == 1:
        return first
    return replace(first, text=f"(+{len(found) - 1}) {first.text}")


def _loops(history: History) -> list[Trouble]:
    now = history.frame.now if history.frame is not None else 0.0
    return [
        Trouble(
            f"{event.agent or 'something'} blocks the loop: "
            + duration(event.seconds + max(0.0, now - event.at), running=True)
            + (f", {_short(event.place)}" if event.place else "")
            + "; isolation: process",
            event.at,
            event.agent,
        )
        for event in history.blocks.open
    ]


def _crashing(snapshot: FleetSnapshot) -> list[Trouble]:
    items: tuple[AgentSnapshot | ServerSnapshot, ...] = (*snapshot.agents, *snapshot.servers)
    return [
        Trouble(
            f"{item.name} is in a crash loop"
            + (f": {count(item.crashes, 'crash', 'crashes')}" * bool(item.crashes)),
            item.since,
            item.name,
        )
        for item in items
        if item.state is AgentState.CRASH_LOOP
    ]


def _broken(history: History) -> list[Trouble]:
    found = []
    for attempt in sorted(history.versions.all_broken, key=lambda one: one.event.outcome == "held"):
        event, version = attempt.event, attempt.version
        which = f"{name_of(event)} v{version}" if event.agent and version else name_of(event)
        what = ": ".join(part for part in (_short(event.place), error_of(event)) if part) or "failed"
        held = event.outcome == "held"
        text = f"{which} {outcome_word(event)}: {what}" if held else f"{which} {what}"
        found.append(Trouble(text, event.at, event.agent, not held))
    return found


def _short(place: str) -> str:
    """``desk/tools.py:12`` without its folder: the screen that it opens has all of it."""
    return place.rpartition("/")[2]
