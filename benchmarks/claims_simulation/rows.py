"""The rows of the simulated database, and the words in them."""

from typing import Any, Final, NamedTuple

DONE: Final = "done"
BUSY: Final = "busy"
TAKEN: Final = "taken over"
FAILED: Final = "failed"
"""What a transaction says; ``FAILED`` if its outcome is unknown."""

RUNNING: Final = "running"
OK: Final = "ok"
ERROR: Final = "error"

NOBODY: Final = 0
"""The life of runs that were handed over."""
FIRST: Final = 1 << 62
"""The position of a run that does not wait."""

QUESTION: Final = "question"
CALLS: Final = "calls"
RESULTS: Final = "results"
ANSWER: Final = "answer"


class Life(NamedTuple):
    """A row of ``lives``."""

    seen: float | None
    started_at: float
    timeline: int = -1
    """That of the server at the last beat."""


class Thread(NamedTuple):
    """A row of ``threads``, with its messages as a linked list, newest first."""

    run: int
    attempt: int
    claim: int
    rows: Any


class Run(NamedTuple):
    """A row of ``runs``."""

    status: str
    life: int
    attempt: int
    thread: int
    claim: int
    deaths: int
    """Replicas that died with it."""


class Row(NamedTuple):
    """A message. ``made`` tells one message from another, ``number`` one write from another."""

    kind: str
    run: int
    step: int
    calls: int
    made: int
    number: int


class Claimed(NamedTuple):
    """A run that a replica has to continue."""

    run: int
    thread: int
    attempt: int
    claim: int


class Queued(NamedTuple):
    """A run that waits for its thread: a row of ``waiting``."""

    run: int
    thread: int
    position: int
    life: int


class Suspect(NamedTuple):
    """A life that may be dead; the runs are only used without the rule ``recheck``."""

    life: int
    runs: tuple[tuple[int, Run], ...]
