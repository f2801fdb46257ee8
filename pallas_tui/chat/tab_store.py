"""The threads that were open in tabs, kept between two starts; their messages stay with the fleet."""

import logging
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from pallas.safe_text import one_line, sanitize

from ..json_file import JsonFile

MAX_TABS: Final = 20
MAX_FLEETS: Final = 50
"""Fleets whose tabs are kept; the fleets that were not opened for longest are dropped first."""
_MAX_ID: Final = 500
_logger = logging.getLogger("pallas_tui")


@dataclass(frozen=True, slots=True)
class SavedTab:
    """A tab: ``thread`` is the id of its thread, or the handle that the fleet knows it by."""

    agent: str
    thread: str
    name: str = ""


class SavedTabs:
    """The tabs of the fleet ``key`` in ``file``; without a file they last for this start only.

    A problem with the file is logged, and the file is overwritten: nothing depends on it.
    """

    def __init__(self, file: JsonFile | None = None, key: str = "") -> None:
        self._file, self._key = file, key
        self._saved: tuple[tuple[SavedTab, ...], int] | None = None
        self._newest: tuple[tuple[SavedTab, ...], int] = ((), 0)
        self._writing = Lock()

    def load(self) -> tuple[tuple[SavedTab, ...], int]:
        """Return the tabs in their order, and the index of the one in front."""
        tabs = _tabs_in(self._document().get(self._key))
        self._saved = tabs
        return tabs

    def has(self, tabs: tuple[SavedTab, ...], front: int) -> bool:
        """Whether nothing is to be written for these tabs."""
        return self._file is None or (tabs, front) == self._saved

    def lacks(self, tabs: tuple[SavedTab, ...]) -> bool:
        """Whether one of these tabs has a thread that is not saved."""
        known = {tab.thread for tab in self._saved[0]} if self._saved is not None else frozenset[str]()
        return self._file is not None and any(tab.thread not in known for tab in tabs)

    def keep(self, tabs: tuple[SavedTab, ...], front: int) -> None:
        """Write these tabs if they changed. Blocks."""
        self.note(tabs, front)
        self.write()

    def note(self, tabs: tuple[SavedTab, ...], front: int) -> None:
        """Have the next ``write`` write these tabs."""
        self._newest = (tabs, front)

    def write(self) -> None:
        """Write the tabs that were noted last, if they changed. Blocks; for any thread."""
        with self._writing:
            tabs, front = self._newest
            if self._file is not None and not self.has(tabs, front):
                self._write(self._file, tabs, front)

    def _write(self, file: JsonFile, tabs: tuple[SavedTab, ...], front: int) -> None:
        document = self._document()
        document.pop(self._key, None)
        rows = [{"agent": tab.agent, "thread": tab.thread, "name": tab.name} for tab in tabs[-MAX_TABS:]]
        if rows:
            document[self._key] = {"tabs": rows, "front": max(0, front - max(0, len(tabs) - MAX_TABS))}
        try:
            file.save(dict(list(document.items())[-MAX_FLEETS:]))
        except OSError as error:
            _logger.warning("the open tabs could not be kept: %s", one_line(str(error), 120))
        self._saved = (tabs, front)

    def _document(self) -> dict[str, Any]:
        document, mistake = self._file.load() if self._file is not None else (None, "")
        if mistake:
            _logger.warning("the open tabs could not be read: %s", mistake)
        return dict(document) if isinstance(document, dict) else {}


def _tabs_in(document: Any) -> tuple[tuple[SavedTab, ...], int]:
    rows = document.get("tabs") if isinstance(document, dict) else None
    tabs = tuple(
        SavedTab(str(row["agent"]), str(row["thread"]), sanitize(str(row.get("name") or ""), 80))
        for row in (rows if isinstance(rows, list) else ())[:MAX_TABS]
        if isinstance(row, dict) and _is_name(row.get("agent")) and _is_name(row.get("thread"))
    )
    front = document.get("front") if isinstance(document, dict) else 0
    return tabs, front if isinstance(front, int) and 0 <= front < len(tabs) else 0


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID and value.isprintable()
