"""One run while it happens: what it counts, whom it tells, and how an agent's runs add up."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final

from pallas.events import Hub
from pallas.model import Event, Outcome, RunFinished, RunResult, StepStarted, ToolEvent, Usage

log = logging.getLogger(__name__)

Listener = Callable[[Event], None]
_NO_USAGE: Final = Usage()


@dataclass(slots=True)
class Stats:
    """An agent's runs: ``admitted`` counts those in flight, waiting ones included; latency in seconds."""

    admitted: int = 0
    active: int = 0
    total: int = 0
    last_latency: float | None = None

    @property
    def waiting(self) -> int:
        """Runs that wait for their conversation."""
        return max(0, self.admitted - self.active)


@dataclass(slots=True, eq=False)
class Run:
    """A run from its admission to its end. ``began`` starts anew when its turn comes."""

    id: str
    agent: str
    hub: Hub
    stats: Stats
    listener: Listener | None = None
    task: asyncio.Task[RunResult] | None = None
    steps: int = 0
    tools: int = 0
    began: float = field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        """How long it has been running."""
        return perf_counter() - self.began

    def emit(self, event: Event) -> None:
        """Publish an event of this run, counting its own steps and calls."""
        if isinstance(event, StepStarted) and event.actor == self.agent:
            self.steps = max(self.steps, event.step)
        elif isinstance(event, ToolEvent) and event.phase == "started" and not event.nested:
            self.tools += 1
        numbered = self.hub.publish(event)
        if self.listener is not None:
            with suppress(Exception):  # a listener that fails is its own problem, never the run's
                self.listener(numbered)

    def finish(self, outcome: Outcome, fault: str = "", usage: Usage = _NO_USAGE) -> None:
        """Count the run as over and tell how it ended."""
        seconds = self.seconds
        self.stats.admitted -= 1
        self.stats.total += 1
        if outcome == "ok":
            self.stats.last_latency = seconds
        log.info(
            "%s: run %s %s in %.2f s, %d steps, %d tools",
            self.agent,
            self.id,
            outcome,
            seconds,
            self.steps,
            self.tools,
            extra={"agent": self.agent, "run_id": self.id},
        )
        self.emit(
            RunFinished(
                run_id=self.id,
                agent=self.agent,
                outcome=outcome,
                seconds=seconds,
                steps=self.steps,
                tools=self.tools,
                tokens_in=usage.input_tokens,
                tokens_out=usage.output_tokens,
                fault=fault,
            )
        )
