"""How the panes are arranged, for each size of terminal, kept between two starts."""

import logging
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from pallas.safe_text import one_line

from ..json_file import JsonFile

SizeClass = Literal["small", "wide", "large", "columns"]

WIDE: Final = 100
TALL: Final = 30
"""From this size on every place is on the screen."""
COLUMNS: Final = 180
"""From this width on the dock stands beside the chat, as the third column."""
TINY: Final = (40, 10)
"""Below this nothing can be shown in a way that helps."""
_LARGE: Final = (160, 50)
_SIZES: Final[tuple[SizeClass, ...]] = ("small", "wide", "large", "columns")
_MOST: Final = 1_000
_MOST_NAMES: Final = 1_000
_RENAMED: Final = {"traces": "credentials"}
"""Panes that an older file calls by another name."""
_logger = logging.getLogger("pallas_tui")


def size_class(width: int, height: int) -> SizeClass:
    """The class of a terminal of that many columns and rows; each has an arrangement of its own."""
    if width < WIDE or height < TALL:
        return "small"
    if width >= COLUMNS:
        return "columns"
    return "large" if width >= _LARGE[0] and height >= _LARGE[1] else "wide"


def is_tiny(width: int, height: int) -> bool:
    """Whether a terminal is too small for anything."""
    return width < TINY[0] or height < TINY[1]


@dataclass(frozen=True, slots=True)
class Layout:
    """One arrangement. 0 leaves a size as the workbench wants it.

    ``rail`` is columns; ``dock`` is rows, or columns in the class ``columns``.

    ``tab`` is the pane of the dock in view; ``zoomed`` the pane that has the whole screen, empty for none.
    """

    rail: int = 0
    dock: int = 0
    rail_hidden: bool = False
    tab: str = ""
    zoomed: str = ""


class Layouts:
    """The arrangements of all size classes. Without a file they last for this start only."""

    def __init__(self, file: JsonFile | None = None) -> None:
        self._file = file
        self._layouts: dict[SizeClass, Layout] = {}
        self._saved: dict[SizeClass, Layout] = {}
        self.folded: frozenset[str] = frozenset()
        """Agents that are folded in the tree, at every size."""
        self._saved_folds = self.folded

    def load(self) -> str:
        """Read the file; return its mistake in one line. Missing values keep their defaults."""
        document, mistake = self._file.load() if self._file is not None else (None, "")
        if isinstance(document, dict):
            for size in _SIZES:
                if (layout := _layout(document.get(size))) is not None:
                    self._layouts[size] = layout
            self.folded = _names(document.get("folded"))
        elif document is not None:
            mistake = (
                f"{self._file.path.name}: does not hold an arrangement of panes; delete it"
                if self._file
                else ""
            )
        self._saved, self._saved_folds = dict(self._layouts), self.folded
        return mistake

    def of(self, size: SizeClass) -> Layout:
        """The arrangement for a size."""
        return self._layouts.get(size, Layout())

    def keep(self, size: SizeClass, layout: Layout) -> None:
        """Remember an arrangement; ``save`` writes it."""
        self._layouts[size] = layout

    @property
    def changed(self) -> bool:
        """Whether there is something that ``save`` has not written."""
        return self._layouts != self._saved or self.folded != self._saved_folds

    def save(self) -> None:
        """Write the file if something changed; raises OSError."""
        if self._file is not None and self.changed:
            sizes: dict[str, Any] = {size: asdict(layout) for size, layout in self._layouts.items()}
            self._file.save({**sizes, "folded": sorted(self.folded)[:_MOST_NAMES]})
        self._saved, self._saved_folds = dict(self._layouts), self.folded

    def save_if_possible(self) -> None:
        """Save the layout; log a failure of the disk, since nothing depends on the file."""
        try:
            self.save()
        except OSError as error:
            _logger.warning("the arrangement of the panes could not be kept: %s", one_line(str(error), 120))


def _names(document: Any) -> frozenset[str]:
    names = document[:_MOST_NAMES] if isinstance(document, list) else ()
    return frozenset(name for name in names if isinstance(name, str))


def _layout(document: Any) -> Layout | None:
    """What a file says, as far as it makes sense."""
    if not isinstance(document, dict):
        return None

    def cells(name: str) -> int:
        value = document.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else 0

    def pane(name: str) -> str:
        value = document.get(name)
        if not isinstance(value, str) or not value.isidentifier() or len(value) > 40:
            return ""
        return _RENAMED.get(value, value)

    return Layout(
        cells("rail"), cells("dock"), document.get("rail_hidden") is True, pane("tab"), pane("zoomed")
    )
