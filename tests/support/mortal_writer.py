"""A process that writes turns into a ledger until it is killed, and says of each when it is kept.

Started with the ids of threads as arguments. For each URL on stdin a child is forked that writes; ``pid N``
comes before it and ``gone N STATUS`` after it, ``kept THREAD RUN INDEX`` when ``finish`` returned. About half
of the runs have a request: the next child goes on with such a run, and puts the others into error.
"""

import asyncio
import os
import sys
import time
from dataclasses import replace
from uuid import uuid4

from pallas.ledger import Ledger, advisory_locks, open_ledger
from pallas.ledger.claims import ClaimedRun
from pallas.model import Fault, Message, RunRecord, ToolAnswer, ToolCall

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
        await ledger.threads.add_message(run.thread, run, message)
    over = replace(run, status="ok", finished_at=time.time())
    return await ledger.threads.finish(run.thread, over, whole)


async def go_on_with(ledger: Ledger, claimed: ClaimedRun) -> int:
    """Write the rest of a run that another child left; returns the place of its answer."""
    said = await ledger.threads.said(claimed.record.id)
    assert said is not None
    assert said.messages == (ASKED, LOOKING, FOUND)[: len(said.messages)]
    return await go_on(ledger, claimed.record, len(said.messages))


async def write(url: str, threads: list[str]) -> None:
    """Turns in every thread at a time, for ever."""
    ledger = await open_ledger(url)

    async def talk(thread: str) -> None:
        while True:
            begun = RunRecord(uuid4().hex, "jarvis", "me", thread, started_at=time.time())
            request = "{}" if int(begun.id, 16) % 2 else None
            while not await begins(begun, request):
                estate = await ledger.inherit(lambda agent: True)
                for claimed in estate.claimed:
                    place = await go_on_with(ledger, claimed)
                    say("kept", claimed.record.thread, claimed.record.id, place)
            say("kept", thread, begun.id, await go_on(ledger, begun, 1))

    async def begins(begun: RunRecord, request: str | None) -> bool:
        try:
            await ledger.threads.begin(begun.thread, begun, ASKED, request=request)
        except Fault as fault:
            if fault.data.get("reason") != "busy":
                raise
            return False
        return True

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
        child = os.fork()
        if child == 0:
            asyncio.run(write(line.strip(), sys.argv[1:]))
        say("pid", child)
        say("gone", *os.waitpid(child, 0))


if __name__ == "__main__":
    main()
