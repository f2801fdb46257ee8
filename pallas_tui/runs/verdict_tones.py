"""Verdicts on saves in words and tones. Nothing in here imports the screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pallas.model import VerdictProgress, VerdictReached, VerdictWord
from pallas.safe_text import one_line

from ..records.verdict_book import VerdictBook
from ..state import Tone
from ..text import count

SAME_FOR: Final = 6.0
"""Seconds for which the line of the main screen says that every run goes as it was recorded."""
TONES: Final[dict[VerdictWord, Tone]] = {
    "same": Tone.OK,
    "costs more": Tone.DEGRADED,
    "not decided": Tone.DEGRADED,
    "other words": Tone.DEGRADED,
    "other tool calls": Tone.ERROR,
    "fails": Tone.ERROR,
}
_RANKED: Final = (Tone.ERROR, Tone.DEGRADED, Tone.OK)
_MAX_NAMES: Final = 100
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class VerdictNews:
    """What there is to say of verdicts in one line. ``has_more``: the screen of verdicts shows more of it."""

    text: str
    tone: Tone
    has_more: bool = True


def verdict_news(book: VerdictBook, now: float) -> VerdictNews | None:
    """What the main screen says now; None for nothing."""
    if book.progress is not None:
        return VerdictNews(progress_text(book.progress), Tone.STARTING, has_more=False)
    last = book.saves[0] if book.saves else None
    if last is None:
        return None
    if waiting := book.waiting:
        who = f"held: {named(waiting)} {'waits' if len(waiting) == 1 else 'wait'}"
        return VerdictNews(f"{who}: {last.problem or _why_held(last, waiting)}{_asking(last)}", tone_of(last))
    if book.is_seen or (last.is_held and book.has_waited):
        return None
    if last.is_same:
        runs = f"{count(total(last), 'run')} {'goes' if total(last) == 1 else 'go'} as recorded"
        return VerdictNews(runs, Tone.OK) if now - book.learnt_at < SAME_FOR else None
    return VerdictNews(f"saved {saved_text(last)}: {words_text(last)}{_asking(last)}", tone_of(last))


def asking_text(event: VerdictReached) -> str:
    """``$ asks models: 3 model calls, $0.0021``, where that key does; empty where there is nothing to ask."""
    if event.estimate is None or event.live not in ("can ask", "asking"):
        return ""
    return f"{'$ asks models' if event.live == 'can ask' else 'asking models'}: {event.estimate.text}"


def _asking(event: VerdictReached) -> str:
    text = asking_text(event)
    return f"; {text}" if text else ""


def tone_of(event: VerdictReached) -> Tone:
    """That of its worst word."""
    tones = {TONES.get(run.word, Tone.DEGRADED) for run in event.runs}
    return Tone.ERROR if event.problem else next((tone for tone in _RANKED if tone in tones), Tone.OK)


def total(event: VerdictReached) -> int:
    """How many runs were judged."""
    return sum(event.counts.values())


def words_text(event: VerdictReached) -> str:
    """``3 same, 1 other words``, or why none was judged."""
    if event.problem:
        return f"no verdict: {event.problem}"
    return ", ".join(f"{number} {word}" for word, number in event.counts.items()) or "no recorded run"


def differing_text(event: VerdictReached) -> str:
    """``1 of 4 differs``."""
    others = total(event) - event.counts.get("same", 0)
    return f"{others or 'none'} of {total(event)} {'differ' if others > 1 else 'differs'}"


def _why_held(event: VerdictReached, waiting: Sequence[str]) -> str:
    """``1 of 4 runs would go differently``: of those that lead to the agents, as the feed says."""
    runs = [run for run in event.runs if run.word != "same" or set(waiting).intersection(run.agents)]
    others = sum(run.word != "same" for run in runs)
    return f"{others} of {count(len(runs), 'run')} would go differently"


def saved_text(event: VerdictReached) -> str:
    """The saved files without their folders, or else the agents."""
    return named([path.rpartition("/")[2] for path in event.files] or event.agents)


def named(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return one_line(", ".join(names[:_NAMED]), _MAX_NAMES) + more


def progress_text(progress: VerdictProgress) -> str:
    """``judging 12 runs of clerk: 4 known, 1 not the same``."""
    text = f"judging {count(progress.runs, 'run')} of {named(progress.agents)}"
    if progress.judged:
        text += f": {progress.judged} known"
        text += f", {progress.differing} not the same" if progress.differing else ""
    return text
