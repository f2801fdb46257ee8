"""The limits of a worker: sizes and timeouts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """The limits of one worker. Sizes in bytes, times in seconds."""

    line: int = 1_048_576
    """The longest line that is read."""
    queue: int = 4_194_304
    """What may wait until the worker reads it."""
    backpressure: float = 5.0
    """How long a request waits for room in the queue."""
    drain: float = 30.0
    """What calls in flight have when the worker is closed, within the timeout of closing."""
    cancel: float = 5.0
    """What a cancelled turn has to end."""
    garbage: int = 5
    """So many lines that are no messages ``within`` so many seconds end the worker."""
    within: float = 60.0
    answer: int = 4_194_304
    """Characters of the longest answer."""
    sessions: int = 1_000
    """Conversations that keep their session."""
    history: int = 262_144
    """Characters of a conversation's history for a new session."""


LIMITS = WorkerLimits()
