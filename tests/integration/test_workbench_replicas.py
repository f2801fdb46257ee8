"""A workbench that is attached to one replica, and the runs of another one on the same SQLite file."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from support.live import ERAS, MODERN_FIRST
from support.replicas import in_its_call
from support.served import Served, served
from support.survivors import ended_run, project
from support.waiting import poll, until

from pallas.model import FleetState
from pallas_tui.frame import FleetFrame
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.runs.run_feed import Feed, FeedRun
from pallas_tui.runs.runs_elsewhere import RunsElsewhere

TOKEN = "the-control-token-of-the-tests"


@dataclass
class Two:
    """Two fleets on one file, the workbench's link to the first, and its feed."""

    one: Served
    two: Served
    url: str
    here: Path
    link: RemoteFleet
    feed: Feed
    elsewhere: RunsElsewhere
    seq: int = 0

    async def look(self) -> None:
        """As the workbench does each second, with all that the link has by then."""
        snapshot = self.link.snapshot()
        await self.elsewhere.look(snapshot, self.feed.doubtful)
        batch = self.link.since(self.seq)
        self.seq = batch.next
        told = self.elsewhere.take()
        self.feed.absorb(FleetFrame(snapshot, batch.events, 0.0, batch.dropped, elsewhere=told))

    async def shows(self, state: str, replica: str) -> FeedRun:
        """The one run of the feed, once it is so."""

        async def found() -> FeedRun | None:
            await self.look()
            runs = [run for run in self.feed.runs if (run.state, run.replica) == (state, replica)]
            return runs[0] if runs else None

        run: FeedRun = await until(found, timeout=60)
        return run


@contextmanager
def attached(fleet: Served) -> Iterator[RemoteFleet]:
    """The link of a workbench to a fleet."""
    link = RemoteFleet(fleet.registry, TokenSource(fleet.registry, given=TOKEN))
    link.start()
    try:
        yield link
    finally:
        link.stop()


@pytest_asyncio.fixture
async def both(tmp_path: Path) -> AsyncIterator[Two]:
    here, url = tmp_path / "here", f"sqlite:///{tmp_path}/ledger.sqlite3"
    here.mkdir()
    with ExitStack() as stack:
        fleets = []
        for name in ("one", "two"):
            root = project(tmp_path / name, url, here=here, unfinished_calls={"*": "repeat"})
            fleets.append(stack.enter_context(served(root, PALLAS_CONTROL_TOKEN=TOKEN)))
            await fleets[-1].says("] running")
        link = stack.enter_context(attached(fleets[0]))
        await until(lambda: link.snapshot().state is FleetState.RUNNING and link.snapshot().replicas == 2)
        yield Two(*fleets, url, here, link, Feed(), RunsElsewhere(lambda: link))


async def replica_of(fleet: Served) -> str:
    return str((await fleet.get("/healthz")).json()["replica"])


async def work(fleet: Served, era: str) -> None:
    with suppress(Exception):  # its fleet may be killed
        async with fleet.client("clerk", era) as clerk:
            await clerk.call_tool("send_message", {"message": "tell me", "conversation_id": "mine"})


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_run_of_another_replica_is_followed_from_its_begin_to_its_end(both: Two, era: str) -> None:
    there = await replica_of(both.two)
    await both.look()
    asking = asyncio.create_task(work(both.two, era))
    await in_its_call(both.here)
    run = await both.shows("running", there)
    assert run.agent == "clerk" and run.surface == "mcp"

    async def said() -> list[str]:
        return [f"{row.role}: {row.content}" for row in await both.link.said(run.id)]

    await poll(said, lambda rows: rows == ["user: tell me", "assistant: One moment."])
    steps = await poll(lambda: both.link.steps(run.id))
    assert (steps[0].kind, steps[0].state) == ("model", "done")
    assert [(step.kind, step.state) for step in steps[1:]] == [("tool", "begun")]
    (both.here / "door").touch()
    await asking
    assert await both.shows("ok", there) is run
    assert run.seconds is not None
    assert (await said())[-1].startswith("assistant: done:")
    await poll(lambda: both.link.steps(run.id), lambda all_: [each.state for each in all_] == ["done"] * 3)
    assert len(both.feed.runs) == 1


@pytest.mark.slow
async def test_a_run_of_another_replica_is_cancelled_from_the_workbench(both: Two) -> None:
    there = await replica_of(both.two)
    await both.look()
    asking = asyncio.create_task(work(both.two, ERAS[0]))
    await in_its_call(both.here)
    run = await both.shows("running", there)
    both.link.cancel(run.id)
    await asking
    assert await both.shows("cancelled", there) is run


@pytest.mark.slow
async def test_a_run_goes_on_at_the_attached_replica_when_the_other_one_is_killed(both: Two) -> None:
    there = await replica_of(both.two)
    await both.look()
    asking = asyncio.create_task(work(both.two, ERAS[0]))
    await in_its_call(both.here)
    run = await both.shows("running", there)
    both.two.send(signal.SIGKILL)
    await asking
    assert await both.shows("running", "") is run

    async def labels() -> list[str]:
        await both.look()
        return [step.label for step in run.steps]

    assert "continues at this fleet" in await labels()
    await poll(labels, lambda all_: any(each.startswith("continued, attempt 2") for each in all_))
    await in_its_call(both.here, 2)
    (both.here / "door").touch()
    assert await both.shows("ok", "") is run
    assert (await ended_run(both.url))[0].id == run.id
    assert len(both.feed.runs) == 1
