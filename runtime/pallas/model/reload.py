"""The outcome of a reload: a new version of an agent, and what changed in it."""

from dataclasses import dataclass
from typing import Literal

from .context_bill import ContextChange
from .event_types import Event
from .verdict import VerdictProgress

Part = Literal["agent", "instruction", "model", "servers", "tools", "config", "file"]
"""The part that changed: ``agent`` was added or removed, ``config`` is a key of its configuration, ``file``
the text of one of its files."""

ChangeKind = Literal["added", "removed", "changed"]
ReloadOutcome = Literal["live", "failed", "held", "unchanged"]
WatchMode = Literal["on", "paused"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the previous version and a new one.

    All text is sanitised, with secrets masked.
    """

    part: Part
    kind: ChangeKind
    name: str = ""  # a tool, a server, a key, or a file relative to the project
    before: str = ""  # one line, like ``after``
    after: str = ""
    diff: str = ""  # a unified diff, if one line each is not enough


@dataclass(frozen=True, slots=True)
class HoldingTest:
    """A test that holds a new version back, the first reason that it does not pass, and how long it took."""

    name: str
    why: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded(Event):
    """The end of a reload.

    ``live``: ``version`` answers from now on. ``failed``: the previous version goes on. ``held``: it goes on
    too, because tests of the project do not pass with the saved files. ``unchanged``: the saved files make no
    difference.
    """

    agent: str = ""  # empty if it concerns the whole project
    outcome: ReloadOutcome
    version: int = 0
    files: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()  # of a reload that failed or is held back: those that it would make
    seconds: float = 0.0  # since the first change was seen
    rolled_back: bool = False
    place: str = ""  # ``file:line`` of the error
    error: str = ""  # one line
    story: str = ""  # the whole error with the traceback
    context: tuple[ContextChange, ...] = ()  # what takes more or fewer tokens now, estimated
    tests: tuple[HoldingTest, ...] = ()  # those that hold the version back; none if they could not be run


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """The state of a fleet's file watch."""

    mode: WatchMode
    since: float  # Unix seconds
    waiting: tuple[str, ...] = ()  # changed files not applied yet; while ``paused`` they stay here
    last: Reloaded | None = None  # the attempt that ended last
    reloading: tuple[str, ...] = ()  # the agents whose next version is being built
    outdated: tuple[str, ...] = ()  # the agents that run another version than their files in ``waiting``
    testing: tuple[str, ...] = ()  # the agents whose next version waits for tests that run now
    held: tuple[str, ...] = ()  # the agents whose next version is held back by tests
    judging: VerdictProgress | None = None  # the verdict that is under way
