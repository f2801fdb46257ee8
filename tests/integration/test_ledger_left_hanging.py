"""A fleet whose database does not answer ends all the same; what it could not write is put right later."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.databases import Server, fresh_database, new_server
from support.executors import FakeAgent, FakeExecutor, Gate
from support.live import ECHO, write_project
from support.turns import error, turn
from support.waiting import poll

from pallas.access.grants import Grants
from pallas.config import load_project
from pallas.fleet.storage import Storage
from pallas.ledger import Ledger, open_ledger
from pallas.ledger.claims import ClaimedRun
from pallas.model import Fault, Message, RunRequest
from pallas.model.ids import mint
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub


def processes_of(pid: int) -> list[int]:
    """A process and its children."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, found)]


@contextmanager
def paused(server: Server) -> Iterator[None]:
    """A server that takes connections and answers nothing."""
    stopped = processes_of(server.pid)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(stopped):
            os.kill(pid, signal.SIGCONT)


@contextmanager
def never_written(ledger: Ledger) -> Iterator[None]:
    """A file system that does not answer: the thread that writes stands still."""
    go, there = threading.Event(), threading.Event()

    def stand(connection: object) -> None:
        there.set()
        go.wait(60)

    task = asyncio.ensure_future(ledger.database.write(stand))
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        yield
    finally:
        go.set()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of its own: it is paused."""
    made = new_server()
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_fleet_ends_in_time_although_its_database_does_not_answer(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    # AG-6
    if kind == "sqlite":
        await left_hanging(tmp_path, f"sqlite:///{tmp_path}/ledger.sqlite3", never_written, caplog)
    else:
        server: Server = request.getfixturevalue("server")
        async with fresh_database(server, is_empty=True) as url:
            await left_hanging(tmp_path, url, lambda _: paused(server), caplog)


async def left_hanging(
    folder: Path, url: str, hang: Callable[[Ledger], object], caplog: pytest.LogCaptureFixture
) -> None:
    """Stop a fleet's kernel and ledger with a run in flight, while the database hangs; then start again."""
    project = load_project(write_project(folder / "p", {"echo": None}, config=dict(ECHO)), {})
    hub, gate = EventHub(), Gate()
    kernel = Kernel(hub)
    kernel.attach(FakeAgent(FakeExecutor(gate.answer)))
    lasting = Storage(url, kernel=kernel, hub=hub, grants=Grants)
    await lasting.open(project)
    assert lasting.ledger is not None
    handle = mint()
    asked = RunRequest("echo", "go", conversation=handle, new_conversation=True)
    run = asyncio.create_task(kernel.run(asked))
    async with asyncio.timeout(30):
        await gate.reached.wait()
    with hang(lasting.ledger), caplog.at_level(logging.WARNING):  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            await kernel.close(0.1, grace_s=0.5)
            with pytest.raises(Fault, match="the fleet is stopping"):
                await run
            await lasting.close(2.0)
    assert "does not answer and is abandoned" in caplog.text

    after = await open_ledger(url)
    try:
        # A server notices some seconds later that the fleet is gone.
        await poll(lambda: nothing_is_left(after, handle), timeout=30)
        # Or the database was told in the end.
        rows = (await after.threads.messages(handle)).items
        assert [(row.content, row.status) for row in rows] == [("go", "error")]
        assert {run.status for run in (await after.runs.list()).items} <= {"error", "cancelled"}
        assert await turn(after, handle, "next") == 2
    finally:
        await after.close()


async def nothing_is_left(ledger: Ledger, thread: str) -> bool:
    """Claim what the fleet left, and say whether no run is under way any more."""
    estate = await ledger.inherit(lambda agent: True)
    assert estate.ended == ()
    for claimed in estate.claimed:
        await check_it_can_go_on(ledger, claimed, thread)
    return not (await ledger.runs.list(status="running")).items


async def check_it_can_go_on(ledger: Ledger, claimed: ClaimedRun, thread: str) -> None:
    """The run has its thread and what was said; here it is put into error."""
    assert (claimed.record.thread, claimed.record.attempt) == (thread, 2)
    stored = await ledger.threads.said(claimed.record.id)
    assert stored is not None
    assert stored.messages == (Message("user", "go"),)
    await ledger.threads.fail(thread, error(claimed.record), "it was not continued")
