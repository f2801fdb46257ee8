"""The list of attempts at new versions, the newest first."""

from collections.abc import Hashable

from pallas.model import Reloaded

from ...state import Tone
from ...supervision import Attempt
from ...supervision.reload_words import is_open, name_of, tally, what_failed
from ...text import DURATION_WIDTH, Glyphs, Line, clock, cropped, duration, fit, joined, right
from ..row_list import RowList
from ..tones import DIM, STRONG, STYLES

_WORD_WIDTH = 11
_VERSION_WIDTH = 5
_NAME_WIDTH = 14


class VersionList(RowList[Attempt]):
    """One line for each; with the agent's name where they are of several."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(
            glyphs,
            id="version-list",
            hint="No edits yet.\nSave a file of an agent: what is different in its new version "
            "is shown here.",
        )
        self._named = False

    def row_key(self, row: Attempt) -> Hashable:
        return id(row)

    @property
    def above(self) -> int:
        """How many newer ones than that there are."""
        return self.cursor

    def take(self, attempts: tuple[Attempt, ...], named: bool) -> None:
        """Show these; ``named``: they are of several agents."""
        self._named = named
        self._painted.clear()
        self.show_rows(attempts)
        self.refresh()

    def go_to(self, event: Reloaded | None) -> None:
        """Put the cursor on the outcome of an edit, else on the newest."""
        found = (i for i, attempt in enumerate(self.rows) if attempt.event is event)
        self.action_move_to(next(found, 0))

    def line_at(self, index: int, width: int) -> Line:
        attempt, glyphs = self.rows[index], self._glyphs
        event, version = attempt.event, attempt.version
        mark, word, style = self._outcome(event)
        shown = f"v{version}" if version and event.agent and event.outcome != "unchanged" else ""
        name = fit(name_of(event), _NAME_WIDTH, glyphs) + " " if self._named else ""
        used = 9 + 2 + len(name) + _VERSION_WIDTH + _WORD_WIDTH + DURATION_WIDTH + 2
        files = ", ".join(path.rpartition("/")[2] for path in event.files)
        about = what_failed(event) if is_open(event) else tally(event.changes)
        text = joined((about, files), glyphs)
        return cropped(
            (
                (f"{clock(event.at)} ", DIM),
                (f"{mark} ", style),
                (name, STRONG),
                (f"{shown:<{_VERSION_WIDTH}}", ""),
                (f"{word:<{_WORD_WIDTH}}", style),
                (right(duration(event.seconds), DURATION_WIDTH) + "  ", DIM),
                (fit(text, max(0, width - used), glyphs), ""),
            ),
            width,
        )

    def _outcome(self, event: Reloaded) -> tuple[str, str, str]:
        glyphs = self._glyphs
        if event.outcome == "failed":
            return glyphs.error, "failed", STYLES[Tone.ERROR]
        if event.outcome == "held":
            return glyphs.degraded, "held back", STYLES[Tone.DEGRADED]
        if event.outcome == "unchanged":
            return glyphs.dot, "unchanged", DIM
        if event.rolled_back:
            return glyphs.rolled_back, "rolled back", STYLES[Tone.DEGRADED]
        return glyphs.ok, "live", STYLES[Tone.OK]
