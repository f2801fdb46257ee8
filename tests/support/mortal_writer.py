"""A process that writes turns into a ledger until it is killed, and says of each when it is kept.

Started with the ids of threads as arguments. For each URL on stdin a child is forked that writes; ``pid N``
comes before it and ``gone N STATUS`` after it, ``kept THREAD RUN INDEX`` when ``finish`` returned. About half
of the runs have a request: the next child goes on with such a run, and puts the others into error. Some are
handed over in the middle, and some wait for their thread first. After a blank the line may have the
``Instant`` at which the child kills itself; ``killed WRITE PHASE`` comes before that.
"""

import asyncio
import os
import sys
import time
from dataclasses import replace
from uuid import uuid4

from pallas.ledger import Ledger, advisory_locks, open_ledger
from pallas.ledger.claims import ClaimedRun
from pallas.ledger.thread_queue import FIRST, QueuedRun
from pallas.model import Fault, Message, RunRecord, ToolAnswer, ToolCall
from support.deadly_writes import Instant, arm

ASKED = Message("user", "find it")
LOOKING = Message("assistant", "let me look", calls=(ToolCall("c1", "s__find"), ToolCall("c2", "s__get")))
FOUND = Message("tool", "one\ntwo", answers=(ToolAnswer("c1", "one"), ToolAnswer("c2", "two")))


def say(*words: object) -> None:
    """One line at once, whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def go_on(ledger: Ledger, run: RunRecord, said: int) -> int:
    """Write what comes after that many messages of a run; returns the place of its answer."""
    whole = [ASKED, LOOKING, FOUND, Message("assistant", f"answer of {run.id}")]
    for message in whole[said:-1]:
        part = await ledger.threads.add_message(run.thread, run, message)
        if message is LOOKING:
            await ledger.threads.keep_result(run, part, "c1", "{}")
    over = replace(run, status="ok", finished_at=time.time())
    return await ledger.threads.finish(run.thread, over, whole)


async def go_on_with(ledger: Ledger, claimed: ClaimedRun) -> int:
    """Write the rest of a run that another child left; returns the place of its answer."""
    said = await ledger.threads.said(claimed.record.id)
    assert said is not None
    assert said.messages == (ASKED, LOOKING, FOUND)[: len(said.messages)]
    return await go_on(ledger, claimed.record, len(said.messages))


async def begins(ledger: Ledger, begun: RunRecord, request: str | None, place: int = FIRST) -> bool:
    """Begin a run; returns False if another one has its thread, or has waited for it longer."""
    try:
        await ledger.threads.begin(begun.thread, begun, ASKED, request=request, place=place)
    except Fault as fault:
        if fault.data.get("reason") != "busy":
            raise
        return False
    return True


async def inherit(ledger: Ledger) -> list[ClaimedRun]:
    """Go on with what other children left; returns the runs that had begun there."""
    estate = await ledger.inherit(lambda agent: True)
    for claimed in estate.claimed:
        say("kept", claimed.record.thread, claimed.record.id, await go_on_with(ledger, claimed))
    for queued in sorted(estate.queued, key=lambda each: each.position):
        await begin_queued(ledger, queued)
    return list(estate.claimed)


async def begin_queued(ledger: Ledger, queued: QueuedRun) -> None:
    """Write a run that waited in another child, whose request is the id of its thread."""
    begun = RunRecord(queued.run_id, "jarvis", "me", queued.request, started_at=time.time())
    while not await begins(ledger, begun, "{}", queued.position):
        await inherit(ledger)
    say("kept", begun.thread, begun.id, await go_on(ledger, begun, 1))


async def write(url: str, threads: list[str]) -> None:
    """Turns in every thread at a time, for ever."""
    ledger = await open_ledger(url)

    async def talk(thread: str) -> None:
        while True:
            begun = RunRecord(uuid4().hex, "jarvis", "me", thread, started_at=time.time())
            chance = int(begun.id, 16)
            request = "{}" if chance % 2 else None
            place = FIRST
            if chance % 16 == 0:
                place = await ledger.threads.wait(thread, begun, thread)
            while not await begins(ledger, begun, request, place):
                await inherit(ledger)
            if request is not None and chance % 5 == 0:
                await ledger.threads.add_message(thread, begun, LOOKING)
                await ledger.threads.hand_over(begun)
                continue
            say("kept", thread, begun.id, await go_on(ledger, begun, 1))

    await asyncio.gather(*map(talk, threads))


async def warm() -> None:
    """Whatever is loaded at a first use is there for every child."""
    ledger = await open_ledger("memory")
    await ledger.threads.create("jarvis", "me")
    await ledger.close()


def hurry() -> None:
    """A fleet whose lock is free is dead at once: here no server is started again."""
    vars(advisory_locks).update(MISSED_SECONDS=0.0, SETTLED_SECONDS=0.0)


def main() -> None:
    """Until stdin ends."""
    hurry()
    asyncio.run(warm())
    for line in sys.stdin:
        url, *instant = line.split()
        child = os.fork()
        if child == 0:
            if instant:
                arm(Instant.read(instant[0]), say)
            asyncio.run(write(url, sys.argv[1:]))
        say("pid", child)
        say("gone", *os.waitpid(child, 0))


if __name__ == "__main__":
    main()
