"""One message in the transcript."""

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ...images import size_text
from ...text import UNICODE, Glyphs, Part, clock, count, duration
from .markdown import AnswerMarkdown, is_light, shown
from .model import Entry


class Heading(Widget):
    """When, who, and how it went, on one line."""

    def __init__(self, left: str, right: str = "", style: str = "bold") -> None:
        super().__init__(classes="chat-heading")
        self._left, self._right, self._style = left, right, style

    def show(self, left: str, right: str) -> None:
        """Draw these instead."""
        self._left, self._right = left, right
        self.refresh()

    def render(self) -> Content:
        time, _, who = self._left.partition("  ")
        gap = self.size.width - cell_len(self._left) - cell_len(self._right)
        parts: list[Part] = [(f"{time}  ", "dim"), (who, self._style)]
        if gap > 1:
            parts += [(" " * gap, ""), (self._right, "dim")]
        return Content.assemble(*parts)


class MessageView(Vertical):
    """A message; an answer may be ``live``: it takes text as it comes, until it is settled."""

    class Pointed(Message):
        """The message was clicked."""

        def __init__(self, view: "MessageView") -> None:
            super().__init__()
            self.view = view

    def __init__(self, entry: Entry, who: str, *, live: bool = False, glyphs: Glyphs = UNICODE) -> None:
        super().__init__(classes=f"chat-message -{entry.role}")
        self.entry = entry
        self.live = live
        self._who = who
        self._glyphs = glyphs
        self._streamed = 0
        self._heading = Heading(*self._heading_parts())
        self._body = self._new_body()

    def compose(self) -> ComposeResult:
        yield self._heading
        yield self._body

    def _heading_parts(self) -> tuple[str, str, str]:
        entry = self.entry
        style = {"user": "bold $text-primary", "error": "bold $text-error"}.get(
            entry.role, "bold $text-accent"
        )
        return f"{clock(entry.at)[:5]}  {self._who}", figures(entry, self._glyphs), style

    def _new_body(self) -> Widget:
        entry = self.entry
        if entry.role == "assistant" and (self.live or is_light(entry.text)) and (entry.text or self.live):
            return AnswerMarkdown(entry.text)
        text = shown(entry.text) or "(no text)"
        if entry.attachments:
            names = ", ".join(f"{one.name} {size_text(one.size)}" for one in entry.attachments)
            text = f"{text}\n[{names}]" if entry.text else f"[{names}]"
        if entry.role == "error":
            text += "\n\nctrl+r sends it again" + (", which may help." if entry.retryable else ".")
        return Static(Content(text), classes="chat-plain")

    async def stream(self, text: str) -> None:
        """Show ``text``, of which an earlier part may be there already. Costs time: call at 10 Hz at most."""
        if isinstance(self._body, AnswerMarkdown) and len(text) > self._streamed and is_light(text):
            new, self._streamed = text[self._streamed :], len(text)
            await self._body.append(new)

    async def settle(self, entry: Entry) -> None:
        """The run is over: ``entry`` takes the place of what was streamed."""
        self.entry, self.live = entry, False
        left, right, _ = self._heading_parts()
        self._heading.show(left, right)
        if isinstance(self._body, AnswerMarkdown) and entry.text and is_light(entry.text):
            # Also where the text is the same: what was parsed in pieces may read differently as a whole.
            await self._body.update(entry.text)
            return
        with self.app.batch_update():
            await self._body.remove()
            self._body = self._new_body()
            await self.mount(self._body)

    def on_click(self, event: events.Click) -> None:
        """Point at this message."""
        self.post_message(self.Pointed(self))


def figures(entry: Entry, glyphs: Glyphs = UNICODE) -> str:
    """How an answer went: ``3.1 s · 4 steps · 2 tools``, or that it was cancelled."""
    parts = []
    if entry.cut:
        parts.append(entry.cut)
    if entry.stopped:
        parts.append(f"stopped: {entry.stopped}")
    if entry.seconds is not None:
        parts.append(duration(entry.seconds))
    if entry.steps:
        parts.append(count(entry.steps, "step"))
    if entry.tools:
        parts.append(count(entry.tools, "tool call"))
    return f" {glyphs.dot} ".join(parts)
