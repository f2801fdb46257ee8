"""The last filter of drawn text: no widget can send a control character to the terminal.

Text is made safe where it is shown; this is for a place where that was forgotten, and for text that is being
edited as it is. One filter runs after every widget, the notifications and the palette included, and works on
lines that changed only.
"""

import re
from functools import lru_cache
from typing import Final

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from pallas.safe_text import replace_invisible

# Of joined emoji the first is drawn: cells are counted for one, but many terminals draw them all; the line
# would then be longer than its place.
_JOINED: Final = re.compile("\u200d.?", re.DOTALL)


class OutputGuard(LineFilter):
    """Replaces what is not seen by the cells that were counted for it: none, or blanks."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments; those with something invisible in them without it."""
        cleaned = [_clean(each) for each in segments]
        return segments if all(map(_is_same, segments, cleaned)) else cleaned


def _is_same(one: Segment, other: Segment) -> bool:
    return one is other


def _clean(segment: Segment) -> Segment:
    text = segment.text
    if segment.control is not None or (text.isascii() and text.isprintable()):
        return segment
    clean = _drawn(text)
    return segment if clean == text else Segment(clean, segment.style)


@lru_cache(1024)
def _drawn(text: str) -> str:
    # A line that is drawn has neither of these two, which are text elsewhere.
    clean = _JOINED.sub("", text).translate({9: "", 10: ""})
    clean = replace_invisible(clean, lambda character: " " * cell_len(character))
    # A selector that was left out may have made what is before it wider.
    return clean + " " * (cell_len(text) - cell_len(clean))


OUTPUT_GUARD: Final = OutputGuard()
