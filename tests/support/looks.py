"""The sizes and themes in which every pane has its look kept."""

from typing import Final

import pytest

SIZES: Final = {"60x20": (60, 20), "80x24": (80, 24), "120x40": (120, 40)}
CONTRAST: Final = "pallas-contrast-dark"
THEMES: Final = {"": "textual-dark", "-light": "textual-light", "-contrast": CONTRAST}

each_look = pytest.mark.parametrize(
    ("size", "theme"),
    [
        pytest.param(cells, theme, id=f"{size}{kind}")
        for kind, theme in THEMES.items()
        for size, cells in SIZES.items()
    ],
)
"""Gives a test ``size`` (columns, rows) and ``theme``: every size in dark, light and high contrast."""
