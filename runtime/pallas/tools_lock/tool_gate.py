"""Keeps from models what differs from the lock, while a fleet runs."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pallas.model.tool_lock import LockedKind, LockMode, ServerChange
from pallas.safe_text import one_line

from .lock_file import LOCK_FILE, LockedServer, LockReader
from .surface import (
    Document,
    Items,
    item_name,
    masked,
    prompt_items,
    resource_items,
    template_items,
    tool_items,
)
from .surface_changes import instructions_change, items_changes

log = logging.getLogger(__name__)

NOT_LOCKED: Final = f"is not in {LOCK_FILE}"
_SHOWN: Final = 5
"""Changes that one record of the log names."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A list of a server, compared: what may be offered, and how much differs."""

    offered: tuple[Any, ...]
    held: frozenset[str] = frozenset()
    """The names of what is left out."""
    changes: tuple[str, ...] = ()
    problem: str = ""
    """Why all of the server counts as different."""
    given: tuple[Any, ...] = ()
    """What the server listed."""
    is_whole: bool = True


@dataclass(slots=True)
class _Seen:
    """What differs in one server, by list. Empty for what is the same."""

    lists: dict[LockedKind, Verdict] = field(default_factory=dict)
    problem: str = ""
    lock_version: object = None


_ITEMS: Final[Mapping[LockedKind, Any]] = {
    "tool": tool_items,
    "prompt": prompt_items,
    "resource": resource_items,
    "resource template": template_items,
}


class ToolGate:
    """Compares what the servers of one agent list with the lock of its project.

    ``given`` is the mode that the project says, ``otherwise`` the one without a word of it, once there is a
    lock. Servers that are ``exempt`` are not compared: they are agents of the same fleet, or in no file of
    the project. ``verdict`` and ``instructions`` read the lock when it has changed, so they block and may be
    called in any thread; the other methods belong to the agent's event loop.
    """

    def __init__(
        self,
        agent: str,
        root: Path,
        given: LockMode | None,
        otherwise: LockMode,
        exempt: Iterable[str] = (),
    ) -> None:
        self._agent = agent
        self._given = given
        self._otherwise: LockMode = otherwise
        self._exempt = frozenset(exempt)
        self._reader = LockReader(root)
        self._seen: dict[str, _Seen] = {}

    @property
    def mode(self) -> LockMode:
        """What a difference does now: nothing without a word of the project and without a lock."""
        if self._given is not None:
            return self._given
        return self._otherwise if self._reader.read()[0] is not None else "off"

    @property
    def version(self) -> object:
        """Of the lock on disk: another one may say otherwise of what was listed. Reads no content."""
        return self._reader.version

    def changes(self) -> tuple[ServerChange, ...]:
        """Return what differs, by server in order of names."""
        found = []
        for server, seen in sorted(self._seen.items()):
            if seen.lock_version != self.version:
                self._judge_again(server, seen)
            count = {what: len(verdict.changes) for what, verdict in seen.lists.items()}
            if seen.problem or any(count.values()):
                found.append(
                    ServerChange(
                        one_line(server, 80),
                        count.get("tool", 0),
                        count.get("prompt", 0),
                        bool(count.get("instructions")),
                        seen.problem,
                        is_held=self.mode == "hold",
                    )
                )
        return tuple(found)

    def verdict(self, server: str, what: LockedKind, items: Iterable[Any], *, is_whole: bool) -> Verdict:
        """Compare a list; ``is_whole`` says that what is not in it is gone."""
        given = tuple(items)
        locked, problem = self._locked(server)
        if locked is None:
            return Verdict(given, given=given, is_whole=is_whole)
        known = locked.surface.lists[what]
        by_name = [(*_ITEMS[what]((each,)).items(), each) for each in given]
        held = frozenset(name for (name, item), _ in by_name if not _is_as_locked(what, known, name, item))
        # One of two things of a name cannot be offered alone: the server chooses which of them is meant.
        same = tuple(each for (name, _), each in by_name if name not in held)
        changes = items_changes(what, known, _ITEMS[what](given))
        words = tuple(str(each) for each in changes if is_whole or each.kind != "removed")
        holds = self.mode == "hold"
        offered, left_out = (same, held) if holds else (given, frozenset[str]())
        return Verdict(offered, left_out, words, problem, given, is_whole)

    def instructions(self, server: str, text: str | None) -> Verdict:
        """Compare instructions; ``offered`` holds them if the model may have them."""
        locked, problem = self._locked(server)
        given = (text,) if text else ()
        if locked is None:
            return Verdict(given, given=given)
        changes = instructions_change(locked.surface.instructions, masked(text or ""))
        words = tuple(map(str, changes))
        offered = () if words and self.mode == "hold" else given
        return Verdict(offered, changes=words, problem=problem, given=given)

    def is_exempt(self, server: str) -> bool:
        """Return whether the server is not compared, regardless of the lock."""
        return server in self._exempt

    def is_holding(self, server: str) -> bool:
        """Return whether what differs in this server is left out."""
        return self.mode == "hold" and self._locked(server)[0] is not None

    def holds(self, server: str, what: LockedKind, name: str) -> bool:
        """Return whether something was listed and left out."""
        seen = self._seen.get(server)
        verdict = seen.lists.get(what) if seen is not None else None
        return verdict is not None and item_name(name) in verdict.held

    def note(self, server: str, what: LockedKind, verdict: Verdict) -> None:
        """Remember what differs, and log it once."""
        seen = self._seen.setdefault(server, _Seen())
        before = seen.lists.get(what)
        was, seen.problem, seen.lists[what] = seen.problem, verdict.problem, verdict
        seen.lock_version = self.version
        if verdict.problem:
            if verdict.problem != was:
                self._warn(server, verdict.problem)
        elif verdict.changes and (before is None or verdict.changes != before.changes):
            more = len(verdict.changes) - _SHOWN
            text = "; ".join(verdict.changes[:_SHOWN]) + (f"; {more} more" if more > 0 else "")
            self._warn(server, f"differs from {LOCK_FILE}: {text}")

    def _judge_again(self, server: str, seen: _Seen) -> None:
        """Compare with another lock what the server listed last."""
        for what, before in tuple(seen.lists.items()):
            if what == "instructions":
                self.note(server, what, self.instructions(server, next(iter(before.given), None)))
            else:
                self.note(server, what, self.verdict(server, what, before.given, is_whole=before.is_whole))

    def _warn(self, server: str, text: str) -> None:
        done = "the model does not get it" if self.mode == "hold" else "the model still gets it"
        name = one_line(server, 80)
        log.warning(
            "%s: server %s %s; %s. `pallas lock` accepts it",
            self._agent,
            name,
            one_line(text, 600),
            done,
            extra={"agent": self._agent, "downstream": name},
        )

    def _locked(self, server: str) -> tuple[LockedServer | None, str]:
        """The server as it is locked, None if it is not compared; why all of it counts as different."""
        if server in self._exempt or self.mode == "off":
            return None, ""
        lock, problem = self._reader.read()
        found = lock.servers.get(server) if lock is not None else None
        if found is None:
            return LockedServer(), problem or NOT_LOCKED
        return (None if found.not_lockable else found), problem


def _is_as_locked(what: LockedKind, known: Items, name: str, item: Document) -> bool:
    """Whether the lock has a thing. Two URIs that differ in a secret have one name there, and numbers."""
    if known.get(name) == item or what == "tool":
        return known.get(name) == item
    number = 2
    while (other := known.get(f"{name} (#{number})")) is not None and other != item:
        number += 1
    return other is not None
