"""The line of the main screen that tells of a verdict, while there is something to tell."""

from collections.abc import Mapping

from ..actions import binding, keys_of
from ..runs.verdict_tones import VerdictNews
from ..text import Glyphs, Line, fit, width_of
from .button_bar import Bar, Button
from .setting_watch import follow, unfollow
from .tones import DIM, KEY, shape

_ACTION = "show.verdicts"


class VerdictLine(Bar):
    """What is judged or was found, and the key of the screen that shows it; a click goes there."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="verdict-line")
        self.display = False
        self._glyphs = glyphs
        self._news: VerdictNews | None = None
        self._keys: Mapping[str, str] = {}

    def on_mount(self) -> None:
        """Show the key that the user chose."""
        follow(self, "keys", self._keys, self._take_keys)

    def on_unmount(self) -> None:
        """Follow no setting any more."""
        unfollow(self)

    def on_resize(self) -> None:
        """What fits depends on the width."""
        self._draw()

    def tell(self, news: VerdictNews | None) -> None:
        """Say that, or go away."""
        if news != self._news:
            self._news = news
            self.display = news is not None
            self._draw()

    def _take_keys(self, keys: Mapping[str, str]) -> None:
        self._keys = keys
        self._draw()

    def _draw(self) -> None:
        if (news := self._news) is None:
            return
        mark, style = shape(news.tone, self._glyphs)
        more = self._more() if news.has_more else ()
        text = f"{news.text}{'' if news.has_more else self._glyphs.ellipsis}"
        room = max(0, self.content_size.width - width_of(more) - 3)
        self.put(
            (Button(((f"{mark} ", style), (fit(text, room, self._glyphs), style)), action="verdicts"),), more
        )

    def _more(self) -> Line:
        """The keys of the screen of verdicts."""
        keys = filter(None, keys_of(_ACTION, self._keys).split(","))
        shown = " ".join(self.app.get_key_display(binding(_ACTION, key=key)) for key in keys)
        return ((f" {shown}", KEY), (" shows it ", DIM)) if shown else ()
