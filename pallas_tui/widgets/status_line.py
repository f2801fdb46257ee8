"""The bottom line: the keys that work now, and questions in place of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget

from ..actions import bindings
from ..state import Tone
from ..text import Line, fit, width_of
from ..ui_clock import PERIOD
from .button_bar import Bar, Button
from .tones import DIM, KEY, STYLES

_LEAST: Final = 3
_WIDE: Final = 80
"""The line keeps ``_LEAST`` keys of the pane from this many columns on, and one less below them."""

Now = Callable[[], tuple[str, str]]
"""A question as things are now; without one, why it cannot be any more, or nothing where none is needed."""


class StatusLine(Bar):
    """The keys of the focused pane first, then those that work everywhere; a click presses one."""

    def __init__(self) -> None:
        super().__init__(id="status")

    def on_mount(self) -> None:
        """Follow the focus."""
        self.screen.bindings_updated_signal.subscribe(self, self._follow)

    def on_resize(self) -> None:
        """What fits depends on the width."""
        self._follow(self.screen)

    def _follow(self, screen: Screen[object]) -> None:
        if screen is not self.app.screen or not self.is_mounted:
            return
        active = [one for one in screen.active_bindings.values() if one.enabled]
        everywhere = [one.binding for one in active if one.node in (self.app, screen)]
        here = [one.binding for one in active if one.node not in (self.app, screen)]
        taken = {binding.action for binding in here if binding.show}
        last = [binding for binding in everywhere if binding.action not in taken]
        display = self.app.get_key_display
        offers = (*_offers(here, display), *(rest := tuple(_offers(last, display))))
        self.put(_trimmed(tuple(_that_fit(offers, len(rest), self.size.width)), self.size.width))


class QuestionLine(Widget, can_focus=True):
    """A question on the bottom line; only ``y`` says yes, leaving it in any way says no.

    It stands while the terminal has not the focus, and follows what it is about where that is said.
    """

    BINDINGS: ClassVar[list[BindingType]] = bindings("question")

    def __init__(self) -> None:
        super().__init__(id="ask")
        self.display = False
        self._question = ""
        self._yes: Callable[[], None] | None = None
        self._before: Widget | None = None
        self._now: Now | None = None
        self._following: Timer | None = None

    def on_mount(self) -> None:
        """Hear of another screen."""
        self.app.screen_change_signal.subscribe(self, self._elsewhere)

    def _elsewhere(self, screen: Screen[object]) -> None:
        """Answer no when another screen covers this one: the user no longer sees the question."""
        if self._yes is not None and screen is not self.screen:
            self.action_answer(False)

    @property
    def question(self) -> str:
        """The current question, empty when there is none."""
        return self._question if self._yes is not None else ""

    def ask(self, question: str, yes: Callable[[], None], now: Now | None = None) -> None:
        """Ask, and call ``yes`` on yes. A question that stands is replaced.

        With ``now`` it is kept true while it stands. When that has no question any more, it is taken back
        with the reason, or is as good as answered with yes.
        """
        if self._yes is None:
            self._before = self.screen.focused
        self._question, self._yes, self._now = question, yes, now
        self._stand(True)
        self.refresh()
        self.focus()

    def render(self) -> Content:
        """The question and its keys."""
        keys: Line = (("  y", KEY), (" yes", ""), ("  n", KEY), (" no ", ""))
        room = self.content_size.width - width_of(keys) - 1
        return Content.assemble((" " + fit(self._question, room), STYLES[Tone.DEGRADED]), *keys)

    def _follow(self) -> None:
        if self._now is None or self._yes is None:
            return
        question, why = self._now()
        if why:
            self.action_answer(False)
            self.app.notify(why, markup=False)
        elif not question:
            self._now = None
            self.action_answer(True)
        elif question != self._question:
            self._question = question
            self.refresh()

    def action_answer(self, yes: bool) -> None:
        """Take the answer, give the focus back."""
        if yes:
            self._follow()  # perhaps there is nothing to say yes to any more
        call, self._yes = self._yes, None
        self._stand(False)
        if self._before is not None and self._before.is_mounted:
            self._before.focus()
        self._before = None
        if yes and call is not None:
            call()

    def on_blur(self) -> None:
        """The user went elsewhere: no. To another window is not elsewhere: the focus comes back here."""
        if self._yes is not None and self.app.app_focus and self.screen.focused is not self:
            self._yes, self._before = None, None
            self._stand(False)

    def _stand(self, asking: bool) -> None:
        """Question and keys share one line, so that nothing moves."""
        self.display = asking
        if self._following is not None:
            self._following.stop()
        self._following = self.set_interval(PERIOD, self._follow) if asking and self._now else None
        for line in self.screen.query(StatusLine):
            line.display = not asking


def _offers(bindings: Iterable[Binding], display: Callable[[Binding], str]) -> Iterator[tuple[Button, ...]]:
    """Yield the buttons of each action once. The keys of a group share one label."""
    words: dict[str, str] = {}
    keys: dict[str, list[Binding]] = {}
    actions: set[str] = set()
    for binding in bindings:
        if binding.show and binding.action not in actions:
            actions.add(binding.action)
            name = binding.action if binding.group is None else binding.group.description
            words[name] = binding.description if binding.group is None else binding.group.description
            keys.setdefault(name, []).append(binding)
    for name, group in keys.items():
        long = any(len(display(binding)) > 1 for binding in group)
        if long and len(group) > 2:
            # "f2-f6": the room belongs to what the focused pane can do.
            group = [group[0], group[-1]]
            between = "-"
        else:
            # Digits may stand side by side, names of keys may not.
            between = " " if long else ""
        buttons = []
        for index, binding in enumerate(group):
            lead = between if index else " "
            word = f" {words[name]} " if index == len(group) - 1 else ""
            buttons.append(Button(((f"{lead}{display(binding)}", KEY), (word, DIM)), binding.key))
        yield tuple(buttons)


def _that_fit(offers: Sequence[tuple[Button, ...]], keep: int, width: int) -> Iterator[Button]:
    """The buttons that fit. What the pane does goes first when there is no room, from its end; the last
    ``keep`` offers, which work everywhere, stay. At least three of the pane's are tried before. What has
    no room even then is left out: half an offer is none.
    """
    sizes = [sum(width_of(button.parts) for button in offer) for offer in offers]
    own = len(offers) - keep
    least = _LEAST if width >= _WIDE else _LEAST - 1
    while own > least and sum(sizes[:own]) + sum(sizes[len(offers) - keep :]) > width:
        own -= 1
    used = 0
    for index in (*range(own), *range(len(offers) - keep, len(offers))):
        if used + sizes[index] - 1 <= width:  # the blank at its end may be cut
            used += sizes[index]
            yield from offers[index]


def _trimmed(buttons: tuple[Button, ...], width: int) -> tuple[Button, ...]:
    """The buttons, without the blank at their end where just that has no room."""
    if not buttons or sum(width_of(button.parts) for button in buttons) <= width:
        return buttons
    *parts, (word, style) = buttons[-1].parts
    return (*buttons[:-1], replace(buttons[-1], parts=(*parts, (word.rstrip(), style))))
