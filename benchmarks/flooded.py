"""The workbench over a fleet that says 200,000 things a second: a program for ``keys``."""

import gc
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

from pallas.model import (
    AgentSnapshot,
    AgentState,
    AuthHop,
    Event,
    FleetSnapshot,
    FleetState,
    Health,
    HealthStatus,
    RunFinished,
    RunningFleet,
    RunStarted,
    StepStarted,
    TextDelta,
    ToolEvent,
)
from pallas.telemetry.event_hub import EventHub
from pallas_tui.placeholder_fleet import PlaceholderFleet

BATCH_EVERY = 0.005
AGENTS = tuple(f"agent{number}" for number in range(8))


class FloodedFleet(PlaceholderFleet, RunningFleet):
    """Eight agents that nobody made, and a thread that publishes ``rate`` events a second."""

    can_control = True

    def __init__(self, rate: int) -> None:
        super().__init__("flood")
        self._hub = EventHub()
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._flood, daemon=True)
        self.published = 0
        self.seconds = 0.0
        now = time.time()
        health = Health(HealthStatus.OK, "", now, now)
        self._snapshot = FleetSnapshot(
            "flood",
            FleetState.RUNNING,
            now,
            "http://127.0.0.1:1/",
            tuple(
                AgentSnapshot(
                    name, name.title(), "", AgentState.READY, now, health, 1000 + at, "http://127.0.0.1:1/mcp",
                    runs_active=3,
                )
                for at, name in enumerate(AGENTS)
            ),
        )  # fmt: skip

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        self._stop.set()
        self._thread.join(timeout)

    def _flood(self) -> None:
        if not self._rate:
            return
        size = max(1, int(self._rate * BATCH_EVERY))
        story, due, began = _story(), time.perf_counter(), time.perf_counter()
        while not self._stop.is_set():
            for event in islice(story, size):
                self._hub.publish(event)
            self.published += size
            self.seconds = time.perf_counter() - began
            due += BATCH_EVERY
            left = due - time.perf_counter()
            if left > 0:
                time.sleep(left)
            elif left < -1:  # this machine cannot offer that much: no debt is run up
                due = time.perf_counter()


def _story() -> Iterator[Event]:
    """Runs without end, one after the other, about 40 events each."""
    for number in count():
        agent, run_id = AGENTS[number % len(AGENTS)], f"{number:012x}"
        yield RunStarted(run_id=run_id, agent=agent, preview=f"question {number}")
        for step in range(1, 5):
            yield StepStarted(run_id=run_id, agent=agent, actor=agent, step=step, kind="llm")
            for _ in range(5):
                yield TextDelta(run_id=run_id, agent=agent, text="some words ")
            call = f"{run_id}-{step}"
            yield ToolEvent(
                run_id=run_id, agent=agent, server="docs", tool="search", phase="started", call_id=call
            )
            yield ToolEvent(
                run_id=run_id, agent=agent, server="docs", tool="search", phase="completed", call_id=call
            )
            yield AuthHop(run_id=run_id, agent=agent, downstream="docs", source="none", status=200)
        yield RunFinished(run_id=run_id, agent=agent, outcome="ok", seconds=1.5, steps=4, tools=4)


def main() -> int:
    """``python -m benchmarks.flooded RATE LOG``: the workbench itself, in this terminal."""
    from pallas_tui.app import Workbench
    from pallas_tui.launch import late_panes
    from pallas_tui.settings import Settings

    fleet = FloodedFleet(int(sys.argv[1]))
    log = Path(sys.argv[2])
    app = Workbench(
        lambda: fleet,
        name="flood",
        late=late_panes(log),
        settings=Settings(theme="textual-dark"),
        settle=gc.freeze,  # as `pallas dev` has it: what is there once the fleet runs is not looked through
    )
    app.run()
    fleet.stop(2.0)
    log.with_suffix(".published").write_text(f"{fleet.published} {fleet.seconds or 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
