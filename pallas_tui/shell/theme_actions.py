"""The part of the workbench that has to do with its looks: themes, and choosing one."""

import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from textual import on
from textual.app import App
from textual.command import CommandPalette, DiscoveryHit, Hit, Provider
from textual.content import Content
from textual.theme import Theme

from ..fuzzy import FuzzyQuery
from ..settings import Settings
from .output_guard import OUTPUT_GUARD
from .themes import DARK, OWN, SIXTEEN, DimTextFilter, opposite, themes_folder, user_themes

_PALETTE_ID: Final = "themes"
_logger = logging.getLogger("pallas_tui")


class Themes(Provider):
    """The names of all themes: the one in use, Pallas's own, then the others."""

    def _names(self) -> list[str]:
        own = [theme_in_use(self.app), *(theme.name for theme in OWN), *SIXTEEN]
        there = self.app.available_themes
        return [*(name for name in dict.fromkeys(own) if name in there), *sorted(set(there) - set(own))]

    async def discover(self) -> AsyncIterator[DiscoveryHit]:
        """All of them."""
        for name in self._names():
            yield DiscoveryHit(Content(name), partial(_choose, self.app, name), name)

    async def search(self, query: str) -> AsyncIterator[Hit]:
        """Those that match."""
        wanted = FuzzyQuery(query)
        for name in self._names():
            if (score := wanted.score(name)) > 0:
                yield Hit(score, Content(name), partial(_choose, self.app, name), name)


def theme_in_use(app: App[Any]) -> str:
    """The theme that was chosen last, not the one that is previewed while another one is chosen."""
    return (app.theme_before if isinstance(app, Look) else None) or app.theme


def _choose(app: App[Any], name: str) -> None:
    if isinstance(app, Look):
        app.choose_theme(name)


class Look(App[int]):
    """Themes: registered, chosen by the settings or the user, seen before they are chosen."""

    def __init__(self, *, settings: Settings, home: Path | None, **more: Any) -> None:
        super().__init__(**more)
        self.settings = settings
        self.home = home
        """The user's settings file; None keeps nothing between two starts."""
        self._quiet = DimTextFilter()
        self._filters.insert(0, self._quiet)
        self._filters.append(OUTPUT_GUARD)
        self.theme_before: str | None = None
        for theme in OWN:
            self.register_theme(theme)
        self._theme_mistakes = [*self._read_themes(), *self._take_theme()]
        # The style sheets are parsed later, with these colours at once.
        self.stylesheet.set_variables(self.get_css_variables())
        self._first_theme: Theme | None = self.current_theme

    def refresh_css(self, animate: bool = True) -> None:
        """Parse the style sheets again, unless this is the theme that they are first parsed for."""
        first, self._first_theme = self._first_theme, None
        if self.current_theme is not first:
            super().refresh_css(animate)

    def tell_mistake(self, mistake: str) -> None:
        """Show a mistake in a file of the user."""
        _logger.warning(mistake)
        self.notify(mistake, title="Settings", severity="warning", timeout=15, markup=False)

    @abstractmethod
    def keep_setting(self, key: str, value: Any) -> None:
        """Use another value for a setting from now on, and write it to the user's file."""

    def tell_theme_mistakes(self) -> None:
        """Show the mistakes in the user's own themes and in the choice of one."""
        for mistake in self._theme_mistakes:
            self.tell_mistake(mistake)

    def _read_themes(self) -> list[str]:
        """Register the user's own themes; returns the mistakes in them."""
        if self.home is None:
            return []
        themes, mistakes = user_themes(themes_folder(self.home))
        for theme in themes:
            self.register_theme(theme)
        return mistakes

    def _take_theme(self) -> Iterator[str]:
        """Use the theme of the settings, or the one that is readable here; yields a mistake in the choice."""
        wanted = self.settings.theme
        if wanted and wanted not in self.available_themes:
            yield f"theme: no such theme: {wanted}; Theme in the palette lists them"
            wanted = ""
        if not wanted:
            # On 16 colours the terminal's own are the readable ones.
            wanted = SIXTEEN[0] if self.console.color_system == "standard" else DARK
        self.theme = wanted

    def watch_theme(self, theme: str) -> None:
        """Quiet text is as readable as the theme wants it."""
        self._quiet.follow(theme)

    def action_toggle_theme(self) -> None:
        """From dark to light and back, within the family of the current theme."""
        self.theme = opposite(self.theme, self.current_theme.dark, set(self.available_themes))

    def choose_theme(self, name: str) -> None:
        """Use a theme from now on, also at the next start."""
        self.theme_before = None
        self.theme = name
        self.keep_setting("theme", name)

    # Choosing: the theme under the cursor is seen at once, and gone again when none is chosen.

    def action_change_theme(self) -> None:
        """Open the list of themes."""
        self.theme_before = self.theme
        self.push_screen(
            CommandPalette([Themes], placeholder="Search for themes…", id=_PALETTE_ID),
        )

    @on(CommandPalette.OptionHighlighted)
    def _preview(self, event: CommandPalette.OptionHighlighted) -> None:
        hit = getattr(event.highlighted_event.option, "hit", None)
        choosing = self.theme_before is not None and self.screen.id == _PALETTE_ID
        if choosing and hit is not None and hit.text in self.available_themes:
            self.theme = hit.text

    @on(CommandPalette.Closed)
    def _preview_ended(self, event: CommandPalette.Closed) -> None:
        before, self.theme_before = self.theme_before, None
        if before is not None and not event.option_selected:
            self.theme = before
