"""Find within a conversation: the line in which one types, and the match that is in view."""

import re
from typing import ClassVar, Final, NamedTuple

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static

from ...actions import bindings
from ...chat.conversation import ChatConversation
from .answer_lines import AnswerLines
from .transcript import Transcript

MAX_MATCHES: Final = 1_000


class Match(NamedTuple):
    """The match number ``number`` in the message with that key."""

    key: int
    number: int


class FindLine(Horizontal):
    """Finds plain text in the messages that are shown, in any case; begins with the newest match."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("find")

    class FindLeft(Message):
        """The focus should go elsewhere; to the transcript if something was ``found``."""

        def __init__(self, found: bool) -> None:
            super().__init__()
            self.found = found

    def __init__(self, conversation: ChatConversation, transcript: Transcript) -> None:
        super().__init__(classes="chat-find")
        self._conversation, self._transcript = conversation, transcript
        self._input = Input(
            placeholder="find in the conversation; ctrl+f again: in all threads", compact=True
        )
        self._count = Static(markup=False)
        self._matches: list[Match] = []
        self._at = 0
        self._marked: list[AnswerLines] = []
        self.display = False

    def compose(self) -> ComposeResult:
        yield self._input
        yield self._count

    @property
    def text(self) -> str:
        """What is looked for."""
        return self._input.value.strip()

    def open(self) -> None:
        """Show the line and focus it."""
        self.display = True
        self.screen.set_focus(self._input)
        self._input.action_select_all()
        self._search(self._input.value)

    def action_close(self) -> None:
        """Hide the line; the message of the match stays selected."""
        self.display = False
        self._unmark()
        self.post_message(self.FindLeft(bool(self._matches)))

    def action_step(self, by: int) -> None:
        """Go to another match, round the ends; messages that came since are searched too."""
        known = self._matches[self._at] if self._matches else None
        self._matches = self._found(self._input.value)
        if known in self._matches:
            self._at = (self._matches.index(known) + by) % len(self._matches)
        self._show()

    @on(Input.Changed)
    def _on_typed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self._search(event.value)

    def _search(self, text: str) -> None:
        self._matches = self._found(text)
        self._at = len(self._matches) - 1
        self._show()

    def _found(self, text: str) -> list[Match]:
        """Return the matches from top to bottom; where they are too many, the newest."""
        found: list[Match] = []
        for entry in self._conversation.entries if text.strip() else ():
            matches = re.finditer(re.escape(text), entry.text, re.IGNORECASE)
            found += (Match(entry.key, number) for number, _ in enumerate(matches))
        return found[-MAX_MATCHES:]

    def _show(self) -> None:
        self._unmark()
        note = ""
        if self._matches:
            more = "+" if len(self._matches) >= MAX_MATCHES else ""
            note = f"{self._at + 1} of {len(self._matches)}{more}"
            self._mark(*self._matches[self._at])
        elif self._input.value.strip():
            note = "no match"
        if note and self._conversation.more_above:
            note += " in what is shown"
        self._count.update(note)

    def _mark(self, key: int, number: int) -> None:
        view = self._transcript.point_at(key)
        pattern = re.compile(re.escape(self._input.value), re.IGNORECASE)
        self._marked = view.texts if view is not None else []
        found = [(text, match) for text in self._marked for match in text.find(pattern)]
        # What is found may be a part of the source that is not drawn.
        wanted = found[min(number, len(found) - 1)] if found else None
        for text in self._marked:
            text.mark(pattern, wanted[1] if wanted is not None and wanted[0] is text else None)
        if wanted is not None:
            self._transcript.show_row(wanted[0], wanted[0].row_of(wanted[1]))

    def _unmark(self) -> None:
        for text in self._marked:
            text.mark(None)
        self._marked = []
