"""The rules of the protocol, each of which can be left out to see what it prevents."""

from typing import Final

BEAT_SECONDS: Final = 1.0
MISSED_SECONDS: Final = 2.0
STALE_SECONDS: Final = 6.0
SETTLED_SECONDS: Final = 5.0
FRESH_SHARE: Final = 0.9
JUDGE_SECONDS: Final = 2.0
"""These six as in ``pallas.ledger.advisory_locks``, whose import takes longer than a short simulation."""
_LONG_SHARE: Final = 0.6
"""The share of ``STALE_SECONDS`` in which a gate trusts a beat without the rule ``short gate``."""
ANSWER_SECONDS: Final = 5.0
"""Seconds until a beat without an answer fails."""
LOOK_SECONDS: Final = 1.0
MAX_DEATHS: Final = 3
QUEUE_SECONDS: Final = 60.0
"""Seconds that a run waits for its thread."""
WRITE_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.5
OWED_SECONDS: Final = 5.0
"""Seconds between two tries to write the end of a run."""

RULES: Final = {
    "fence": "each write of a turn names the run and its attempt",
    "gate": "a replica without a fresh beat asks the database before it calls a tool",
    "beats": "a replica that holds its lock is dead without beats",
    "grace": "after the start of a server a free lock says nothing for a while",
    "recheck": "who takes over looks again, in the transaction that does it",
    "take": "a run begins only in a thread that no other run has",
    "fenced results": "the stored result of one of several calls names the attempt too",
    "fenced retry": "a write that is tried again looks for its message in a thread that the run still has",
    "fenced progress": "the progress of a run names the attempt too",
    "gap": "after a gap between beats a gate asks the database, even if the last beat is fresh again",
    "short gate": "a gate trusts a beat for less than the time after which a free lock means death",
    "enrolled alive": "a life is written with its first beat, by the server's clock",
    "known lives": "a life that only runs mention is written by the replica that looks, as seen just now",
    "quick lock": "a replica that lost the connection of its lock connects again at once",
    "settled judge": "a replica takes no other one for dead before its own beats went well for a while",
    "settled start": "a replica that has just started does not judge for as long by beats before a failover",
    "fresh judge": "a replica takes no other one for dead without a beat of just now, and its own lock",
    "claim in fence": "each write names its claim too: attempts repeat when a failover loses transactions",
    "own runs": "a replica goes on with runs that are its own in the database and that it does not know",
    "each claim counts": "a replica goes on with what it claimed, even if the next claim of its look fails",
    "queued life": "a life stays while runs of it wait that the replica that looks does not serve",
    "sure leave": "a run that waits no more leaves the queue of its thread, and tries until it has",
    "patient start": "a replica that cannot read a claimed run tries again",
}
"""Each rule by its name: what holds while it is not left out."""


class Rules:
    """Which rules hold."""

    __slots__ = (
        "adopts",
        "beats",
        "enrols_alive",
        "fence",
        "fences_progress",
        "fences_results",
        "fences_retries",
        "fresh_judge",
        "gap",
        "gate",
        "gate_seconds",
        "grace",
        "keeps_claims",
        "keeps_queued",
        "knows_lives",
        "names_claim",
        "patient",
        "quick_lock",
        "recheck",
        "settled_judge",
        "settled_start",
        "sure_leave",
        "take",
    )

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        if unknown := without - RULES.keys():
            raise ValueError(f"no rule {sorted(unknown)}; there are {', '.join(RULES)}")

        def has(name: str) -> bool:
            return name not in without

        self.fence = has("fence")
        self.gate = has("gate")
        self.beats = has("beats")
        self.grace = has("grace")
        self.recheck = has("recheck")
        self.take = has("take")
        self.fences_results = has("fenced results")
        self.fences_retries = has("fenced retry")
        self.fences_progress = has("fenced progress")
        self.gap = has("gap")
        is_short = has("short gate")
        self.gate_seconds = FRESH_SHARE * MISSED_SECONDS if is_short else _LONG_SHARE * STALE_SECONDS
        self.enrols_alive = has("enrolled alive")
        self.knows_lives = has("known lives")
        self.quick_lock = has("quick lock")
        self.fresh_judge = has("fresh judge")
        self.settled_judge = has("settled judge")
        self.settled_start = has("settled start")
        self.names_claim = has("claim in fence")
        self.adopts = has("own runs")
        self.keeps_claims = has("each claim counts")
        self.keeps_queued = has("queued life")
        self.sure_leave = has("sure leave")
        self.patient = has("patient start")
