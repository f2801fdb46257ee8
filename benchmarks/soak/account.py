"""What became of every call and of every run."""

from collections import Counter
from dataclasses import dataclass, field

from pallas.model import Event, LoopBlocked, Reloaded, RunFinished, RunStarted


@dataclass
class Account:
    """Calls as their callers saw them, and runs as the fleet told them.

    ``outcomes``: ``completed``, ``cancelled`` (asked for), ``fault TYPE`` for what came back as a Fault,
    ``wrong`` for an answer to another question, ``lost`` for a call that a Fault or an answer never came to,
    ``refused`` for a connection that was not taken. A run is lost that began and never ended.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    reloads: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    open_runs: dict[str, str] = field(default_factory=dict)
    started: int = 0
    finished: int = 0
    missed: int = 0
    blocked: int = 0

    def call(self, outcome: str, example: str = "") -> None:
        """A call is over."""
        self.outcomes[outcome] += 1
        if example:
            self.examples.setdefault(outcome, example)

    def hear(self, event: Event) -> None:
        """An event of the fleet."""
        if isinstance(event, RunStarted):
            self.started += 1
            self.open_runs[event.run_id] = event.agent
        elif isinstance(event, RunFinished):
            self.finished += 1
            self.open_runs.pop(event.run_id, None)
        elif isinstance(event, Reloaded):
            self.reloads[event.outcome] += 1
        elif isinstance(event, LoopBlocked) and not event.over:
            self.blocked += 1

    @property
    def bad(self) -> int:
        """What must not be: calls lost, wrong or refused, runs without an end."""
        return sum(self.outcomes[each] for each in ("lost", "wrong", "refused")) + len(self.open_runs)

    def lines(self) -> list[str]:
        """The account, to be printed."""
        rows = [
            f"calls      {sum(self.outcomes.values())}: "
            + ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items())),
            f"runs       acknowledged {self.started}, ended {self.finished}, lost {len(self.open_runs)}"
            + (f" ({self.missed} events were not seen)" if self.missed else ""),
            "done to it " + ", ".join(f"{count} {name}" for name, count in sorted(self.done.items())),
            "reloads    " + ", ".join(f"{count} {name}" for name, count in sorted(self.reloads.items())),
        ]
        if self.blocked:
            rows.append(f"the loop was blocked {self.blocked} times")
        rows += [f"  {name}: {text[:200]}" for name, text in sorted(self.examples.items())]
        return rows
