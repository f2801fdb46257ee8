"""One message in the transcript."""

from collections.abc import Callable, Iterable
from typing import Final

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from pallas.safe_text import sanitize

from ...chat.answer_parts import AnswerPart, parts_of
from ...chat.call_tree import Tree
from ...chat.conversation import ChatEntry, ChatRun
from ...chat.token_prices import tokens
from ...text import UNICODE, Glyphs, Part, clock, count, duration
from ..removal import remove
from ..tones import DIM
from .answer_lines import AnswerLines, DrawnRows
from .tall_widget import TallWidget
from .thumbnails import Thumbnails
from .tool_tree import ToolTree

SHOWN: Final = 20_000
"""Characters that are shown, the newest ones."""


class ReasoningView(Static):
    """One line until it is unfolded, also while the reasoning goes on."""

    def __init__(self, text: str, glyphs: Glyphs) -> None:
        super().__init__(markup=False, classes="chat-reasoning")
        self._glyphs = glyphs
        self._text = ""
        self._open = False
        self.show(text)

    def show(self, text: str) -> None:
        """Show this reasoning, of which an earlier part may already be shown."""
        if text != self._text:
            self._text = text
            self._draw()

    def toggle(self) -> None:
        """Unfold or fold it."""
        self._open = not self._open
        self._draw()

    def _draw(self) -> None:
        mark = self._glyphs.open if self._open else self._glyphs.closed
        head = Content.assemble(f"{mark} reasoning", (f"  {count(len(self._text.split()), 'word')}", DIM))
        if not self._open:
            self.update(head)
            return
        text = self._text.strip("\n")
        shown = text if len(text) <= SHOWN else self._glyphs.ellipsis + text[-SHOWN:]
        self.update(Content("\n").join([head, Content(sanitize(shown)).stylize("dim italic")]))

    def on_click(self, event: events.Click) -> None:
        """Unfold or fold it."""
        event.stop()
        self.toggle()


class Heading(Widget):
    """Time, author and result, on one line."""

    def __init__(self, left: str, right: tuple[str, ...] = (), style: str = "bold", dot: str = "·") -> None:
        """Of ``right`` as many parts are shown as fit, from the first on."""
        super().__init__(classes="chat-heading")
        self._left, self._right, self._style, self._dot = left, right, style, dot

    def show(self, left: str, right: tuple[str, ...]) -> None:
        """Draw these instead."""
        self._left, self._right = left, right
        self.refresh()

    def render(self) -> Content:
        time, _, author = self._left.partition("  ")
        parts: list[Part] = [(f"{time}  ", "dim"), (author, self._style)]
        for many in range(len(self._right), 0, -1):
            right = f" {self._dot} ".join(self._right[:many])
            gap = self.size.width - cell_len(self._left) - cell_len(right)
            if gap > 1:
                parts += [(" " * gap, ""), (right, "dim")]
                break
        return Content.assemble(*parts)


_NO_CALLS: Final = AnswerPart("", 0, 0)


class MessageView(TallWidget, Vertical):
    """A message; an answer may be ``live``: it takes text as it is streamed, until it is settled."""

    class Pointed(Message):
        """The message was clicked."""

        def __init__(self, view: "MessageView") -> None:
            super().__init__()
            self.view = view

    def __init__(
        self,
        entry: ChatEntry,
        author: str,
        *,
        live: bool = False,
        glyphs: Glyphs = UNICODE,
        now: Callable[[], float] = lambda: 0.0,
        drawn: DrawnRows | None = None,
    ) -> None:
        """``now`` returns the stopwatch of the conversation, whose messages share ``drawn``."""
        super().__init__(classes=f"chat-message -{entry.role}")
        self.entry = entry
        self._now = now
        self.live = live
        self._author = author
        self._glyphs, self._drawn = glyphs, drawn
        self._heading = Heading(*self._heading_parts(), glyphs.dot)
        self._content: list[tuple[AnswerPart, Widget]] = []
        self.reasoning: ReasoningView | None = None

    def compose(self) -> ComposeResult:
        yield self._heading
        if not self.live:
            self._content = [(part, self._made(part)) for part in self._parts()]
            yield from (widget for _, widget in self._content)
            yield from self._pictures()

    @property
    def texts(self) -> list[AnswerLines]:
        """The pieces of its text."""
        return [widget for _, widget in self._content if isinstance(widget, AnswerLines)]

    @property
    def calls(self) -> list[ToolTree]:
        """The calls of an answer, in one widget for each place in the text."""
        return [widget for _, widget in self._content if isinstance(widget, ToolTree)]

    def _pictures(self) -> Iterable[Thumbnails]:
        """Yield the pictures; the message is queried again for each, since it drops old data."""
        if self.entry.attachments:
            yield Thumbnails(lambda: self.entry.attachments, self._glyphs)

    def _heading_parts(self) -> tuple[str, tuple[str, ...], str]:
        entry = self.entry
        styles = {"user": "bold", "error": "bold $text-error", "note": "dim"}
        style = styles.get(entry.role, "bold $text-primary")
        return f"{clock(entry.at)[:5]}  {self._author}", figures(entry), style

    def _parts(self) -> list[AnswerPart]:
        entry = self.entry
        if entry.role == "assistant" and (entry.text or entry.tree):
            return entry.parts
        text = entry.text or ("" if entry.attachments else "(no text)")
        if entry.role == "error":
            text += "\n\nctrl+r sends it again" + (", which may help." if entry.retryable else ".")
        return [AnswerPart(text)] if text else []

    def _made(self, part: AnswerPart, tree: Tree | None = None) -> Widget:
        """Return a widget for a part of the message, or for one of a run with this ``tree``."""
        entry = self.entry
        if not part.text and (calls := tree or entry.tree) is not None:
            return ToolTree(calls, self._now, part, live=self.live, glyphs=self._glyphs)
        is_markdown = self.live or (entry.role == "assistant" and bool(entry.text))
        return AnswerLines(
            part.text, markdown=is_markdown, live=self.live, glyphs=self._glyphs, drawn=self._drawn
        )

    async def stream(self, run: ChatRun) -> None:
        """Show what was written and called so far, of which an earlier part may already be shown."""
        parts = parts_of(run.text, run.places)
        for index, part in enumerate(parts):
            if index < len(self._content) and bool(part.text) != bool(self._content[index][0].text):
                await self._remove_from(index)
            if index == len(self._content):
                widget = self._made(part, run.tree)
                self._content.append((part, widget))
                await self.mount(widget)
            match self._content[index][1]:
                case AnswerLines() as text:
                    text.show(part.text)
                    if index < len(parts) - 1:
                        text.settle()
                case ToolTree() as calls:
                    calls.limit(part)
        await self._remove_from(len(parts))

    def take_calls(self) -> None:
        """Show the calls and the figures of the answer as they are now."""
        left, right, _ = self._heading_parts()
        self._heading.show(left, right)
        parts = [part for part in self._parts() if not part.text]
        for at, calls in enumerate(self.calls):
            calls.limit(parts[at] if at < len(parts) else _NO_CALLS)

    async def reason(self, text: str) -> None:
        """Show the reasoning of the answer, of which an earlier part may already be shown."""
        if text and self.reasoning is None:
            self.reasoning = ReasoningView(text, self._glyphs)
            await self.mount(self.reasoning, after=self._heading)
        elif self.reasoning is not None:
            self.reasoning.show(text)

    async def _remove_from(self, index: int) -> None:
        gone = [widget for _, widget in self._content[index:]]
        del self._content[index:]
        await remove(gone)

    async def settle(self, entry: ChatEntry) -> None:
        """Replace the streamed text with ``entry``: the run is over."""
        self.entry, self.live = entry, False
        left, right, _ = self._heading_parts()
        self._heading.show(left, right)
        parts = self._parts()
        if [bool(part.text) for part in parts] == [bool(part.text) for part, _ in self._content]:
            self._content = [(part, widget) for part, (_, widget) in zip(parts, self._content, strict=True)]
            if entry.role == "assistant" and (entry.text or not self.texts):
                self._settle_parts()
                await self.mount(*self._pictures())
                return
        calls = self.calls
        after: Widget = self.reasoning or self._heading
        old = self.texts
        self._content = []
        with self.app.batch_update():
            for part in parts:
                widget: Widget
                if not part.text and calls:
                    widget = calls.pop(0)
                else:
                    widget = self._made(part)
                    await self.mount(widget, after=after)
                self._content.append((part, widget))
                after = widget
            await remove([*old, *calls])
            self._settle_parts()
            await self.mount(*self._pictures())

    def _settle_parts(self) -> None:
        for part, widget in self._content:
            if isinstance(widget, AnswerLines):
                widget.show(part.text)
                widget.settle()
            elif isinstance(widget, ToolTree):
                widget.limit(part)
                widget.settle()

    def on_click(self, event: events.Click) -> None:
        """Select this message."""
        self.post_message(self.Pointed(self))


def figures(entry: ChatEntry) -> tuple[str, ...]:
    """Return the figures of an answer: ``AUTH``, ``cancelled``, ``3.1 s``, ``4 steps``, cost, tokens."""
    parts = [entry.fault] if entry.fault else []
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
    if not entry.cost.is_empty:
        whole = f", {entry.spent.text} in all" if entry.spent.text != entry.cost.text else ""
        parts.append(entry.cost.words + whole)
    if entry.tokens_in is not None or entry.tokens_out is not None:
        parts.append(f"{tokens(entry.tokens_in or 0)} in {tokens(entry.tokens_out or 0)} out")
    return tuple(parts)
