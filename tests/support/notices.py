"""What the workbench said in notices: each is gone after five seconds, and a busy machine may look later."""

from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from textual.app import App
from textual.notifications import Notification, Notifications
from textual.pilot import Pilot

from .waiting import until

_raised: Final[WeakKeyDictionary[Notifications, list[Notification]]] = WeakKeyDictionary()


def notices_of(app: App[Any]) -> list[Notification]:
    """All notices of an application, oldest first, until ``clear_notifications``."""
    return list(_raised.get(app._notifications, ()))


async def noticed(app: App[Any], pilot: Pilot[Any], text: str) -> str:
    """The first notice with this text in its title or message, as soon as there is one."""

    def found() -> str:
        said = (f"{each.title} {each.message}".strip() for each in notices_of(app))
        return next((each for each in said if text in each), "")

    said: str = await until(found, pilot)
    return said


def _noted(
    add: Callable[[Notifications, Notification], Notifications],
) -> Callable[[Notifications, Notification], Notifications]:
    def added(self: Notifications, notification: Notification) -> Notifications:
        _raised.setdefault(self, []).append(notification)
        return add(self, notification)

    return added


def _forgotten(clear: Callable[[Notifications], Notifications]) -> Callable[[Notifications], Notifications]:
    def cleared(self: Notifications) -> Notifications:
        _raised.pop(self, None)
        return clear(self)

    return cleared


Notifications.add = _noted(Notifications.add)  # type: ignore[method-assign]
Notifications.clear = _forgotten(Notifications.clear)  # type: ignore[method-assign]
