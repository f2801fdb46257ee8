"""A new version of an agent: what came of it, and what is different in it."""

from dataclasses import dataclass
from typing import Literal

from .event_types import Event

Part = Literal["agent", "instruction", "model", "servers", "tools", "config", "file"]
"""What of a project or an agent is different: ``agent`` is whether there is one at all, ``config`` a key of
its configuration, ``file`` the text of one of its files."""

ChangeKind = Literal["added", "removed", "changed"]
ReloadOutcome = Literal["live", "failed", "unchanged"]
WatchMode = Literal["on", "paused"]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the version before and a new one.

    ``name`` says which (a tool, a server, a key, a file relative to the project), ``before`` and ``after``
    are one line each, ``diff`` the lines of a unified diff where a line each is not enough. All sanitised,
    with what is secret masked.
    """

    part: Part
    kind: ChangeKind
    name: str = ""
    before: str = ""
    after: str = ""
    diff: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded(Event):
    """An attempt to put a new version in the place of the old one is over.

    ``agent`` is empty for what concerns the project as a whole. ``live``: from now on ``version`` answers.
    ``failed``: the one before goes on, ``changes`` are those that would have been, ``place`` is the
    ``file:line`` where it went wrong, ``error`` one line, ``story`` the whole of it with the traceback.
    ``unchanged``: what was saved makes no difference. ``seconds`` from the first change that was seen.
    """

    agent: str = ""
    outcome: ReloadOutcome
    version: int = 0
    files: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    seconds: float = 0.0
    rolled_back: bool = False
    place: str = ""
    error: str = ""
    story: str = ""


@dataclass(frozen=True, slots=True)
class WatchSnapshot:
    """How a fleet looks after its files. ``waiting`` are changed files that nothing was done about yet.

    While ``paused`` they stay there. ``since`` is Unix seconds, ``last`` the attempt that ended last.
    ``reloading`` are the agents whose next version is being made just now.
    """

    mode: WatchMode
    since: float
    waiting: tuple[str, ...] = ()
    last: Reloaded | None = None
    reloading: tuple[str, ...] = ()
