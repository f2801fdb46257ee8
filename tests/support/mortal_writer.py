"""A process that writes turns into a ledger until it is killed, and says of each when it is kept.

Started with the ids of threads as arguments. For each URL on stdin a child is forked that writes; ``pid N``
comes before it and ``gone N`` after it, ``kept THREAD RUN INDEX`` when ``finish`` returned.
"""

import asyncio
import os
import sys
import time
from dataclasses import replace
from uuid import uuid4

from pallas.ledger import open_ledger
from pallas.model import Message, RunRecord, ToolAnswer, ToolCall

LOOKING = Message("assistant", "let me look", calls=(ToolCall("c1", "s__find"), ToolCall("c2", "s__get")))
FOUND = Message("tool", "one\ntwo", answers=(ToolAnswer("c1", "one"), ToolAnswer("c2", "two")))


def say(*words: object) -> None:
    """One line at once, whole."""
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


async def write(url: str, threads: list[str]) -> None:
    """Turns in every thread at a time, for ever."""
    ledger = await open_ledger(url)

    async def talk(thread: str) -> None:
        while True:
            begun = RunRecord(uuid4().hex, "jarvis", "me", thread, started_at=time.time())
            question, answer = Message("user", "find it"), Message("assistant", f"answer of {begun.id}")
            await ledger.threads.begin(thread, begun, question)
            await ledger.threads.add_message(thread, begun.id, LOOKING)
            await ledger.threads.add_message(thread, begun.id, FOUND)
            over = replace(begun, status="ok", finished_at=time.time())
            index = await ledger.threads.finish(thread, over, [question, LOOKING, FOUND, answer])
            say("kept", thread, begun.id, index)

    await asyncio.gather(*map(talk, threads))


async def warm() -> None:
    """Whatever is loaded at a first use is there for every child."""
    ledger = await open_ledger("memory")
    await ledger.threads.create("jarvis", "me")
    await ledger.close()


def main() -> None:
    """Until stdin ends."""
    asyncio.run(warm())
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            asyncio.run(write(line.strip(), sys.argv[1:]))
        say("pid", child)
        os.waitpid(child, 0)
        say("gone", child)


if __name__ == "__main__":
    main()
