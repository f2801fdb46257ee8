"""Which verdicts a workbench knows, however it learns of them, and what it says of them in a line."""

import asyncio
from typing import Any

from support.fake_fleet import NOON, FakeFleet, desk

from pallas.model import Attachment, Event, RunVerdict, TokenScope, VerdictReached
from pallas_tui.frame import FleetFrame
from pallas_tui.records.verdict_book import MAX_VERDICTS, VerdictBook
from pallas_tui.runs.verdict_tones import named, tone_of, verdict_news
from pallas_tui.state import Tone


def verdict(number: int, **more: Any) -> VerdictReached:
    given: dict[str, Any] = {"counts": {"same": 1}, **more}
    return VerdictReached(at=NOON + number, agents=("desk",), seconds=number, **given)


def frame(*events: Event, **more: Any) -> FleetFrame:
    return FleetFrame(desk(), events, NOON, **more)


async def test_a_verdict_that_was_heard_while_the_last_one_was_read_is_the_newest() -> None:
    fleet = FakeFleet()
    book = VerdictBook(lambda: fleet)
    fleet.judged.append(verdict(1))
    asked = asyncio.Event()

    async def slow() -> tuple[VerdictReached, ...]:
        asked.set()
        await told.wait()
        return tuple(fleet.judged)

    told = asyncio.Event()
    fleet.verdict = slow  # type: ignore[method-assign]
    reading = asyncio.create_task(book.read(NOON))
    await asked.wait()
    book.absorb(frame(verdict(2)))
    told.set()
    await reading
    await book.read(NOON)
    assert [event.seconds for event in book.saves] == [2, 1]


def test_the_last_ones_are_kept_and_each_once() -> None:
    book = VerdictBook(FakeFleet)
    book.absorb(frame(*(verdict(number) for number in range(60))))
    book.absorb(frame(verdict(59)))
    assert [event.seconds for event in book.saves] == [*range(59, 59 - MAX_VERDICTS, -1)]


def test_the_last_one_is_read_once_for_each_connection_and_where_events_were_lost() -> None:
    book = VerdictBook(FakeFleet)
    here = Attachment("there", NOON, TokenScope.FULL)
    assert not book.is_due(frame())
    assert book.is_due(frame(dropped=1))
    assert [book.is_due(frame(attachment=here)) for _ in range(2)] == [True, False]
    assert book.is_due(frame(attachment=here, dropped=1))
    assert not book.is_due(frame(attachment=Attachment("there", NOON, TokenScope.FULL, lost_at=NOON)))
    assert book.is_due(frame(attachment=Attachment("there", NOON + 9, TokenScope.FULL)))


def test_a_line_has_the_tone_of_the_worst_word_and_the_first_names() -> None:
    runs = tuple(RunVerdict(word, "test", "desk", word) for word in ("same", "not decided", "fails"))
    event = verdict(1, runs=runs, counts={"same": 1, "fails": 1, "not decided": 1}, files=("a/b.py",))
    assert (tone_of(event), tone_of(verdict(2))) == (Tone.ERROR, Tone.OK)
    book = VerdictBook(FakeFleet)
    book.absorb(frame(event))
    news = verdict_news(book, NOON + 3600)
    assert news is not None
    assert (news.text, news.tone) == ("saved b.py: 1 same, 1 fails, 1 not decided", Tone.ERROR)
    assert named(("a", "b", "c", "d", "e")) == "a, b, c and 2 more"


def test_texts_of_a_fleet_elsewhere_are_made_safe() -> None:
    book = VerdictBook(FakeFleet)
    bad = "x\x1b[2J\ny"
    run = RunVerdict(bad, "test", bad, "fails", bad, bad, bad, bad, (bad,), 0.1, bad, bad)
    book.absorb(frame(verdict(1, runs=(run,), files=(bad,), problem=bad)))
    (event,) = book.saves
    assert "\x1b" not in repr(event.runs) + repr(event.files) + event.problem
    assert event.runs[0].before_text.count("\n") == 1
