"""What is taken from a worker and kept for it, and how long it is waited for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Of one worker (SPEC 7.4). Sizes in bytes, times in seconds.

    ``line`` is the longest line that is read, ``queue`` what may wait until the worker reads it, for at most
    ``backpressure``. ``drain`` is what calls in flight have at the end, within what closing may take;
    ``cancel`` what a cancelled turn has to end. ``garbage`` lines that are no messages ``within`` so many
    seconds end the worker. ``answer`` is the longest answer in characters, ``sessions`` how many
    conversations keep theirs, ``history`` how many characters of one a new session is told.
    """

    line: int = 1_048_576
    queue: int = 4_194_304
    backpressure: float = 5.0
    drain: float = 30.0
    cancel: float = 5.0
    garbage: int = 5
    within: float = 60.0
    answer: int = 4_194_304
    sessions: int = 1_000
    history: int = 262_144


LIMITS = WorkerLimits()
