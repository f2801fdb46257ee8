"""What tests of the ledger say in threads."""

import time
from collections.abc import Awaitable
from dataclasses import replace

from pallas.ledger import Ledger
from pallas.model import Fault, Message, MessageRecord, RunRecord, ToolAnswer, ToolCall
from pallas.model.refusals import REASON

LOOKING = Message(
    "assistant", "let me look", calls=(ToolCall("c1", "s__find", {"q": 1}), ToolCall("c2", "s__get"))
)
FOUND = Message("tool", "one\ntwo", answers=(ToolAnswer("c1", "one"), ToolAnswer("c2", "two", False)))

SUMMARY = Message("user", "what was said: much", summary=True)


def run(id: str, thread: str = "", **fields: object) -> RunRecord:  # noqa: A002 - the word of the record
    """A run that begins now."""
    began = RunRecord(id, "jarvis", "me", thread, "rest", started_at=time.time())
    return replace(began, **fields)  # type: ignore[arg-type]


def ok(begun: RunRecord, **fields: object) -> RunRecord:
    """The run as answered."""
    over = replace(begun, status="ok", finished_at=time.time(), seconds=1.5, steps=2, tools=2)
    return replace(over, **fields)  # type: ignore[arg-type]


def error(begun: RunRecord, fault: str = "it broke") -> RunRecord:
    """The run as failed."""
    return replace(begun, status="error", finished_at=time.time(), fault=fault)


def asked(text: str = "hello") -> Message:
    """A question."""
    return Message("user", text)


def said(text: str = "hi") -> Message:
    """An answer."""
    return Message("assistant", text)


async def turn(ledger: Ledger, thread: str, id: str, question: str = "hello", answer: str = "hi") -> int:  # noqa: A002
    """A whole turn; returns the place of its answer."""
    begun = run(id, thread)
    await ledger.threads.begin(thread, begun, asked(question))
    return await ledger.threads.finish(thread, ok(begun), [asked(question), said(answer)])


async def tool_turn(ledger: Ledger, thread: str, id: str, question: str = "find it") -> int:  # noqa: A002
    """A turn with two calls, told on the way."""
    begun = run(id, thread)
    await ledger.threads.begin(thread, begun, asked(question))
    await ledger.threads.add_message(thread, begun, LOOKING)
    await ledger.threads.add_message(thread, begun, FOUND)
    return await ledger.threads.finish(thread, ok(begun), [asked(question), LOOKING, FOUND, said("there")])


async def refused(work: Awaitable[object]) -> str:
    """The reason with which the ledger refuses ``work``; empty if it does not."""
    try:
        await work
    except Fault as fault:
        return str(fault.data[REASON])
    return ""


async def all_rows(ledger: Ledger, thread: str) -> list[MessageRecord]:
    """Every row of a thread."""
    rows: list[MessageRecord] = []
    cursor = ""
    while True:
        page = await ledger.threads.messages(thread, limit=200, cursor=cursor)
        rows += page.items
        if not (cursor := page.next):
            return rows
