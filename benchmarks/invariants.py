"""What must hold of durable runs: the simulation, `make chaos` and their tests check this list."""

from typing import Final

INVARIANTS: Final = {
    "I1": "an acknowledged message is never lost, duplicated or reordered in its thread",
    "I2": "a finished tool call never runs again",
    "I3": "at most one attempt of a run writes",
    "I4": "at most one run per thread is running",
    "I5": "every accepted run ends, is parked or is queued, and none is without an owner for long",
    "I6": "an event id means the same everywhere, and a stream resumed elsewhere has no gap and no repeat",
    "I7": "a firing of a schedule happens once",
    "gate": "no gate lets a call of a run through that was taken over before",
    "alive": "no replica is taken for dead that runs and reaches the database",
}
SIMULATED: Final = frozenset({"I1", "I2", "I3", "I4", "I5", "gate", "alive"})
"""Those of the simulation, which has no streams and no schedules."""
OBSERVED: Final = frozenset({"I1", "I2", "I3", "I4", "I5", "I6", "gate", "alive"})
"""Those of `make chaos`. There are no schedules yet."""
