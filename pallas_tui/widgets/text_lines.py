"""A long text that is wrapped and painted only where it is seen."""

from collections.abc import Hashable, Iterable
from typing import Final

from ..text import READABLE, Line, wrapped
from .line_view import LineView

MAX_SHOWN: Final = 400_000
"""Most characters that are shown; a copy is not cut."""

Paragraphs = Iterable[tuple[str, str]]
"""Text and style; a text may have line breaks of its own."""


class TextLines(LineView):
    """Sanitised text to read and scroll. ``put`` replaces it; the place that is read stays by its line."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._paragraphs: tuple[tuple[str, str], ...] = ()
        self._lines: list[Line] = []
        self._wrapped_at = -1

    def put(self, paragraphs: Paragraphs, *, top: bool = True) -> None:
        """Show that; from its beginning, or with ``top`` off from where the reader is."""
        found = tuple(paragraphs)
        if found == self._paragraphs:
            return
        self._paragraphs, self._wrapped_at = found, -1
        self._wrap()
        self.show_again(top)

    def on_resize(self) -> None:
        """Text is wrapped to a width."""
        self._wrap()
        super().on_resize()

    def _wrap(self) -> None:
        width = min(self.line_width, READABLE)
        if width == self._wrapped_at or width <= 0:
            return
        self._wrapped_at = width
        self._lines = []
        room = MAX_SHOWN
        for text, style in self._paragraphs:
            cut = text[:room]
            self._lines += [((line, style),) for line in wrapped(cut.expandtabs(4), width)]
            room -= len(cut)
            if len(cut) < len(text):
                self._lines.append(((f"… cut after {MAX_SHOWN:,} characters; y copies all", "dim"),))
                break

    def line_count(self) -> int:
        return len(self._lines)

    def line_at(self, index: int, width: int) -> Line:
        return self._lines[index]

    def key_at(self, index: int) -> Hashable:
        return index

    def find(self, key: Hashable) -> int | None:
        return key if isinstance(key, int) and key < len(self._lines) else None
