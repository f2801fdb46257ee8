"""Reloads and blocked loops in a line each."""

from collections.abc import Sequence
from typing import Final

from pallas.model import Change, LoopBlocked, Part, Reloaded
from pallas.model.context_bill import changes_text

from ..text import count, duration

PROJECT: Final = "project"
"""The name used instead of an agent's for changes of the whole project."""
ISOLATION_HINT: Final = "`isolation: process` gives it a loop of its own"

LETS_THROUGH: Final = "r lets it through"
_COUNTED: Final[dict[Part, str]] = {"servers": "server", "tools": "tool", "config": "key", "file": "file"}
_NAMED_KEYS: Final = 2
_NAMED_PARTS: Final[tuple[Part, ...]] = ("instruction", "model", "servers", "tools", "config")


def tally(changes: Sequence[Change]) -> str:
    """Return the changes as ``instruction, 2 tools``; files only if nothing more exact is known."""
    parts = [change.part for change in changes]
    shown: tuple[Part, ...] = _NAMED_PARTS if any(part in _NAMED_PARTS for part in parts) else ("file",)
    moved = [f"{change.name} {change.kind}" for change in changes if change.part == "agent" and change.name]
    counted = [_of(part, changes) for part in shown if part in parts and not (moved and part == "file")]
    return ", ".join((*moved, *counted))


def _of(part: Part, changes: Sequence[Change]) -> str:
    found = [change for change in changes if change.part == part]
    if part == "config" and len(found) <= _NAMED_KEYS and all(change.name for change in found):
        return ", ".join(change.name for change in found)
    return count(len(found), _COUNTED[part]) if part in _COUNTED else part


def is_open(event: Reloaded) -> bool:
    """Whether what was saved does not answer: it failed, or tests hold it back."""
    return event.outcome in ("failed", "held")


def outcome_word(event: Reloaded) -> str:
    """What became of an edit that is open."""
    return "held back" if event.outcome == "held" else "failed"


def failed_version(event: Reloaded, answers: int) -> int:
    """Which version failed or is held back; ``answers`` is the one that goes on, 0 where it is not known."""
    return max(event.version, answers + 1) if answers else event.version


def error_of(event: Reloaded) -> str:
    """Return why it failed, without the place that the event may have before the reason."""
    return event.error.removeprefix(f"{event.place}: ") if event.place else event.error


def what_failed(event: Reloaded) -> str:
    """``research.py:12: NameError: name 'x' is not defined``."""
    return ": ".join(part for part in (event.place, error_of(event)) if part) or "the log has the reason"


def crash_loop(name: str, detail: str) -> str:
    """``research is in a crash loop: 5 failures within 60 s``."""
    why = detail.removeprefix(f"{name}: ").removeprefix("crash loop: ")
    return f"{name} is in a crash loop" + (f": {why}" if why else "")


def name_of(event: Reloaded) -> str:
    """The agent, or that it is the project."""
    return event.agent or PROJECT


def sentence(event: Reloaded, answers: int = 0) -> str:
    """The whole of it in a line, as for the feed; ``answers`` is the version that answers now."""
    name, took = name_of(event), f"in {duration(event.seconds)}"
    if is_open(event):
        failed = failed_version(event, answers)
        which = f" v{failed}" if failed and event.agent else ""
        return f"{name}{which} {outcome_word(event)}{_goes_on(event, answers)}: {what_failed(event)}"
    if event.outcome == "unchanged":
        return f"{name}: saved, no difference"
    different = tally(event.changes)
    if not event.agent:
        files = ", ".join(path.rpartition("/")[2] for path in event.files)
        return f"{name} reloaded {took}" + (f": {different or files}" if different or files else "")
    own = tally([change for change in event.changes if change.part != "agent"])
    suffix = (f": {own}" if own else "") + (f"; {changes_text(event.context)}" if event.context else "")
    arrived = {change.kind for change in event.changes if change.part == "agent"}
    if "removed" in arrived:
        return f"{name} was removed from the fleet"
    if "added" in arrived:
        return f"{name} is new, live {took}{suffix}"
    if event.rolled_back:
        return f"{name} rolled back to v{event.version} {took}{suffix}"
    version = f" v{event.version}" if event.version else ""
    return f"{name}{version} live {took}{suffix}"


def _goes_on(event: Reloaded, answers: int) -> str:
    if not event.agent:
        return ", nothing changed"
    return f", v{answers} answers" if answers else ", the previous version answers"


def blocked(event: LoopBlocked) -> str:
    """``research blocks the loop for 2.1 s at tools.py:12``."""
    subject = event.agent or "something"
    verb = "blocked" if event.over else "blocks"
    where = f" at {event.place}" if event.place else ""
    return f"{subject} {verb} the event loop for {duration(event.seconds)}{where}"


def blocked_details(event: LoopBlocked) -> str:
    """Everything about it, to read and to copy."""
    over = "It is over." if event.over else "Until it ends, no other agent of the fleet can work."
    fix = (
        "While Python code of one agent computes or waits without `await`, no other agent in this process"
        " runs. Use `await`, `asyncio.to_thread` or, in `agents.yaml`, `isolation: process` for "
        + (event.agent or "the agent")
        + ", which gives it a process and a loop of its own."
    )
    return "\n\n".join(part for part in (f"{blocked(event)}. {over}", fix, event.stack.rstrip()) if part)
