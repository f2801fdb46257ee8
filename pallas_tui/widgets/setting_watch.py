"""Doing as a setting says, from the start and whenever it is changed."""

from collections.abc import Callable
from typing import Any

from textual.widget import Widget


def follow[T](widget: Widget, name: str, default: T, take: Callable[[T], None]) -> None:
    """Give ``take`` the value of a setting now, and each new one while ``widget`` is there.

    ``default`` is taken in an application that has no settings. ``widget`` must call ``unfollow`` when it is
    unmounted: the signal holds what is subscribed to it.
    """
    last: T = getattr(getattr(widget.app, "settings", None), name, default)
    take(last)
    signal: Any = getattr(widget.app, "settings_changed", None)
    if signal is None:
        return

    def changed(settings: Any) -> None:
        nonlocal last
        if (new := getattr(settings, name, default)) != last:
            last = new
            take(new)

    signal.subscribe(widget, changed)


def unfollow(widget: Widget) -> None:
    """Follow no setting any more."""
    signal: Any = getattr(widget.app, "settings_changed", None)
    if signal is not None:
        signal.unsubscribe(widget)
