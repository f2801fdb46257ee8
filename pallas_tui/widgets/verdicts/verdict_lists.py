"""The list of verdicts, and that of the runs of one: a line each."""

from collections.abc import Hashable
from typing import Final

from pallas.model import RunVerdict, VerdictReached

from ...records.verdict_book import key_of
from ...runs.verdict_tones import TONES, saved_text, tone_of, words_text
from ...state import Tone
from ...text import Glyphs, Line, clock, cropped, fit, joined
from ..row_list import RowList
from ..tones import DIM, STRONG, STYLES, shape

EMPTY: Final = (
    "No verdict yet in this session.\n"
    "\n"
    "When you save a file, the recorded runs that lead to the changed agents are replayed with the new "
    "files: no model is asked and no tool is called. The verdict says which of them would go differently, "
    "and where they differ first.\n"
    "\n"
    "Keep a run first: s on it in the feed, or on its answer in the chat. Then save a file of its agent. The "
    "section `verdict` of agents.yaml says what is judged.\n"
)
UNWATCHED: Final = "\nThis fleet does not watch its files, so no save is judged: start it with --watch.\n"
LEAVES: Final = "\nEscape goes back."
_WORD: Final = 16
_AGENT: Final = 12
_NAME: Final = 28


class VerdictLines(RowList[VerdictReached]):
    """When a file was saved, what was found, and which files."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="verdict-list")

    def row_key(self, row: VerdictReached) -> Hashable:
        return key_of(row)

    def line_at(self, index: int, width: int) -> Line:
        event, glyphs = self.rows[index], self._glyphs
        mark, style = shape(tone_of(event), glyphs)
        held = "held" if event.is_held and not event.is_same else ""
        text = joined((held, saved_text(event), words_text(event)), glyphs)
        loud = DIM if event.is_same else ""
        return cropped(
            (
                (f"{clock(event.at)} ", DIM),
                (f"{mark} ", style),
                (fit(text, max(4, width - 12), glyphs), loud),
            ),
            width,
        )


class JudgedRunLines(RowList[RunVerdict]):
    """The word, the name, the agent, and what differs first."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="judged-list")

    def row_key(self, row: RunVerdict) -> Hashable:
        return row.source, row.name

    def line_at(self, index: int, width: int) -> Line:
        run, glyphs = self.rows[index], self._glyphs
        tone = TONES.get(run.word, Tone.DEGRADED)
        name = min(_NAME, max(10, width // 4))
        room = max(4, width - 2 - _WORD - 1 - name - 1 - _AGENT - 1)
        return cropped(
            (
                (f"{shape(tone, glyphs)[0]} ", STYLES[tone]),
                (fit(run.word, _WORD, glyphs) + " ", DIM if tone is Tone.OK else STYLES[tone]),
                (fit(run.name, name, glyphs) + " ", STRONG),
                (fit(run.agent, _AGENT, glyphs) + " ", DIM),
                (fit(run.why, room, glyphs), ""),
            ),
            width,
        )
