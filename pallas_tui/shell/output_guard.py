"""The last filter of drawn text: no widget can send a control character to the terminal.

Text is made safe where it comes in; this is for the place where that was forgotten. One filter runs after
every widget, the notifications and the palette included, and works on lines that changed only.
"""

import re
from typing import Final

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

# As in pallas.safe_text, with newline and tab: a line that is drawn has neither. They take no cell, so
# leaving them out moves nothing. Of joined emoji the first is drawn: cells are counted for one, but many
# terminals draw them all, and the line would be longer than its place.
_JOINED: Final = re.compile("\u200d.?", re.DOTALL)
_HOSTILE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


class OutputGuard(LineFilter):
    """Removes control characters from each segment."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments; those with something hostile in them without it."""
        for segment in segments:
            if segment.control is None and _HOSTILE.search(segment.text):
                return [_clean(each) for each in segments]
        return segments


def _clean(segment: Segment) -> Segment:
    if segment.control is not None:
        return segment
    return Segment(_HOSTILE.sub("", _JOINED.sub("", segment.text)), segment.style)


OUTPUT_GUARD: Final = OutputGuard()
