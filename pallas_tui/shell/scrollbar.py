"""Scrollbars of a terminal that has only ASCII: whole cells, without the blocks that smooth an end."""

from typing import ClassVar

from textual.scrollbar import ScrollBar, ScrollBarRender


class WholeCells(ScrollBarRender):
    """A bar of colour alone."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * len(ScrollBarRender.VERTICAL_BARS)
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * len(ScrollBarRender.HORIZONTAL_BARS)


def use(*, ascii_only: bool) -> None:
    """Draw every scrollbar of this process so from now on."""
    ScrollBar.renderer = WholeCells if ascii_only else ScrollBarRender
