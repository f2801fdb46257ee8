"""Events of a run as MCP progress notifications."""

import asyncio
import re
from typing import Literal

import pytest
from support.waiting import until

from pallas.model import StepStarted, TextDelta, ToolEvent, ToolPhase
from pallas.surfaces.progress_notifications import ProgressSender

LINES = re.compile(r"^([^/]+)/(.+): (started|completed|failed)$|^(\S+) step (\d+) \((llm|tool)\)$")

Sent = list[tuple[float, float | None, str]]


def step(number: int, kind: Literal["llm", "tool"] = "llm", actor: str = "harper") -> StepStarted:
    return StepStarted(run_id="r", agent="harper", actor=actor, step=number, kind=kind)


def tool(phase: ToolPhase, call: str = "1", name: str = "search") -> ToolEvent:
    return ToolEvent(run_id="r", agent="harper", server="docs", tool=name, phase=phase, call_id=call)


def text(piece: str, *, reasoning: bool = False, actor: str = "", rollback: bool = False) -> TextDelta:
    return TextDelta(
        run_id="r", agent="harper", text=piece, reasoning=reasoning, actor=actor, rollback=rollback
    )


async def send(*events: StepStarted | ToolEvent | TextDelta, with_text: bool = False) -> Sent:
    sent: Sent = []

    async def report(progress: float, total: float | None, message: str) -> None:
        sent.append((progress, total, message))

    async with ProgressSender(report, with_text=with_text) as sender:
        for event in events:
            sender.hear(event)
    return sent


async def test_the_lines_the_counter_and_the_totals_are_those_of_the_contract() -> None:
    # PI-19, PI-20, PI-21, PI-24
    sent = await send(
        step(1),
        step(2, "tool"),
        tool("started"),
        tool("completed"),
        tool("started", "2"),
        tool("failed", "2"),
    )
    assert sent == [
        (1.0, None, "harper step 1 (llm)"),
        (2.0, None, "harper step 2 (tool)"),
        (3.0, None, "docs/search: started"),
        (4.0, 4.0, "docs/search: completed"),
        (5.0, None, "docs/search: started"),
        (6.0, 6.0, "docs/search: failed"),
    ]
    assert all(LINES.match(message) for _, _, message in sent)


async def test_text_goes_only_to_callers_that_asked() -> None:
    # PI-21, PI-26
    assert await send(text("Hello")) == []
    assert await send(text("Hello "), text("world"), with_text=True) == [(1.0, None, "harper » Hello world")]


async def test_text_keeps_its_place_among_the_lines() -> None:
    # PI-26
    sent = await send(
        text("Let me look. "), tool("started"), tool("completed"), text("Found."), with_text=True
    )
    assert [message for _, _, message in sent] == [
        "harper » Let me look. ",
        "docs/search: started",
        "docs/search: completed",
        "harper » Found.",
    ]


async def test_reasoning_is_not_sent_as_text() -> None:
    assert await send(text("hmm", reasoning=True), with_text=True) == []


async def test_many_pieces_of_text_are_joined() -> None:
    # PI-26
    sent: Sent = []

    async def report(progress: float, total: float | None, message: str) -> None:
        sent.append((progress, total, message))

    async with ProgressSender(report, with_text=True) as sender:
        for number in range(2_000):
            sender.hear(text(f"{number} "))
            if number % 100 == 0:
                await asyncio.sleep(0)
    whole = "".join(message.removeprefix("harper » ") for _, _, message in sent)
    assert whole == "".join(f"{number} " for number in range(2_000))
    assert len(sent) < 200
    assert [progress for progress, _, _ in sent] == [float(n + 1) for n in range(len(sent))]


async def test_text_goes_out_a_line_at_a_time_however_many_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    # PI-26
    monkeypatch.setattr("pallas.surfaces.progress_notifications.TEXT_EVERY", 3600.0)
    sent: list[str] = []

    async def report(progress: float, total: float | None, message: str) -> None:
        sent.append(message)

    async with ProgressSender(report, with_text=True) as sender:
        for speaker in ("", "helper", "other"):
            sender.hear(text("one ", actor=speaker))
        await until(lambda: sent)
        for speaker in ("", "helper", "other"):
            sender.hear(text("two", actor=speaker))
        for _ in range(20):
            await asyncio.sleep(0)
        assert sent == ["harper » one "]  # the next one is due in an hour
    assert sent == ["harper » one ", "helper » one two", "other » one two", "harper » two"]


async def test_a_transport_that_raises_each_time_stops_nothing() -> None:
    # PI-22
    tried: list[str] = []

    async def report(progress: float, total: float | None, message: str) -> None:
        tried.append(message)
        raise ConnectionError("gone")

    async with ProgressSender(report, with_text=False) as sender:
        sender.hear(step(1))
        sender.hear(step(2))
    assert len(tried) == 2


async def test_a_caller_that_reads_nothing_loses_the_oldest_lines_and_delays_nobody() -> None:
    stuck = asyncio.Event()

    async def report(progress: float, total: float | None, message: str) -> None:
        await stuck.wait()

    sender = ProgressSender(report, with_text=False)
    for number in range(10_000):
        sender.hear(step(number))
    assert len(sender._lines) <= 2_000


async def test_the_last_line_is_sent_before_the_block_ends() -> None:
    # PI-23
    assert (await send(step(1), tool("started"), tool("completed")))[-1][2] == "docs/search: completed"


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (("Well, ", None, "Well", ", yes."), ["harper » Well, yes."]),
        (("Well, ", None, "No."), ["harper » Well, \n\n[the answer broke off and begins again]\n\nNo."]),
        (
            ("Well, yes", None, "Well"),
            ["harper » Well, yes\n\n[the answer broke off and begins again]\n\nWell"],
        ),
        (("Well", None), ["harper » Well\n\n[the answer broke off and begins again]\n\n"]),
        ((None, "Well"), ["harper » Well"]),
    ],
)
async def test_text_of_an_attempt_that_broke_off_is_not_sent_twice(
    pieces: tuple[str | None, ...], expected: list[str]
) -> None:
    events = [text("", rollback=True) if piece is None else text(piece) for piece in pieces]
    sent = await send(*events, step(2), with_text=True)
    assert [message for _, _, message in sent] == [*expected, "harper step 2 (llm)"]
