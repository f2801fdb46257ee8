"""Which runs wait for a question: those that asked for its run, and nobody who only shows their span."""

import asyncio

from pallas.model import ToolEvent, TraceContext
from pallas.runs.in_flight import InFlight
from pallas.runs.run import ActiveRun, Stats
from pallas.telemetry.event_hub import EventHub

TRACE, OWN, CALL = "a" * 32, "b" * 16, "c" * 16


def begun(runs: InFlight, run_id: str, agent: str, *, parent: str = "", within: str = "") -> ActiveRun:
    """A run in flight."""
    run = ActiveRun(run_id, agent, EventHub(), Stats(), parent_span=parent, within=within)
    run.context = TraceContext(TRACE, OWN)

    async def work() -> None:
        await asyncio.Event().wait()

    run.task = asyncio.create_task(work())  # type: ignore[assignment]
    runs.add(run)
    return run


async def test_a_span_counts_only_at_the_agent_that_was_called() -> None:
    runs = InFlight()
    runs.leads_to = lambda caller, server, agent: (caller, server, agent) == ("front", "other", "clerk")
    front = begun(runs, "r1", "front")
    called = {"run_id": "r1", "agent": "front", "tool": "send_message", "call_id": "x", "span_id": CALL}
    front.emit(ToolEvent(server="other", phase="started", **called))
    begun(runs, "r2", "clerk", parent=CALL)
    begun(runs, "r3", "stranger", parent=CALL)
    below = begun(runs, "r4", "helper", within="r2")
    assert [each.id for each in runs.chain("r2")] == ["r2", "r1"]
    assert [each.id for each in runs.chain("r3")] == ["r3"]
    assert [each.id for each in runs.chain(below.id)] == ["r4", "r2", "r1"]
    front.emit(ToolEvent(server="other", phase="completed", **called))
    assert [each.id for each in runs.chain("r2")] == ["r2"]
    assert runs.chain("gone") == ()
    for run in runs:
        assert run.task is not None
        run.task.cancel()
