"""Removing widgets so that nothing of them stays in memory."""

from collections.abc import Iterable

from textual.widget import Widget


async def remove(widgets: Iterable[Widget]) -> None:
    """Remove widgets of one parent, and have the parent forget them.

    A widget remembers which of its children were displayed when that was last asked for. Until it is asked
    again, which may be never, the removed ones live on with all lines that were drawn of them.
    """
    gone = list(widgets)
    if not gone or not isinstance(parent := gone[0].parent, Widget):
        return
    await parent.remove_children(gone)
    _ = parent.displayed_and_visible_children
