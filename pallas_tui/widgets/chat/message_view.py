"""One message in the transcript."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
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
from ...chat.answer_weight import PLAIN_ABOVE, WEIGHT, is_light, weight
from ...chat.call_tree import Tree
from ...chat.conversation import ChatEntry, ChatRun
from ...chat.token_prices import tokens
from ...text import UNICODE, Glyphs, Part, clock, count, duration
from ..removal import remove
from .chat_markdown import SHOWN, AnswerMarkdown, Splitter, shown, source_of
from .reasoning_view import ReasoningView
from .thumbnails import Thumbnails
from .tool_tree import ToolTree

REST_LENGTH: Final = 2_000
TAIL_LENGTH: Final = 4_000
"""Characters of one widget of plain text, about."""
REST_WEIGHT: Final = 24
PIECE_WEIGHT: Final = 50
"""About how many widgets are mounted at once while an answer is written."""


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


class LiveText(Vertical):
    """An answer while it is written: complete blocks as Markdown, drawn once; the rest while it is short.

    Redrawing all of it ten times a second would block the keys: a list of a hundred items takes a third of a
    second. What comes behind ``WEIGHT`` is plain, in few widgets, of which only the last one is drawn again.
    """

    def __init__(self) -> None:
        super().__init__(classes="chat-live")
        self._rest = AnswerMarkdown()
        self._heavy_rest = Static(markup=False)
        self._splitter = Splitter()
        self._shown = ""
        self._drawn = 0
        self._tail: Static | None = None
        self._tail_text = ""
        self._is_cut = False
        """Whether the rest continues a block whose beginning is shown as plain text."""

    def compose(self) -> ComposeResult:
        yield self._rest
        yield self._heavy_rest

    async def show(self, text: str) -> None:
        """Show ``text``, of which an earlier part may already be shown, or another text before it."""
        again = not text.startswith(self._shown)
        if not again and (len(text) == len(self._shown) or len(self._shown) >= SHOWN):
            return
        if again:
            self._splitter, self._shown, self._drawn = Splitter(), "", 0
            self._tail, self._is_cut = None, False
        blocks = self._splitter.feed(text[len(self._shown) : SHOWN])
        self._shown = text
        with self.app.batch_update():
            if again:
                lasting = (self._rest, self._heavy_rest)
                await remove(each for each in self.children if each not in lasting)
            for is_plain, piece in self._pieces(blocks):
                await (self._add_plain(piece) if is_plain else self._add_markdown(piece))
            heavy = self._is_full or _is_heavy(self._splitter.rest)
            if heavy and (taken := self._splitter.take(TAIL_LENGTH)):
                self._is_cut = True
                await self._add_plain(taken)
            rest = sanitize(self._splitter.rest)
            self._rest.display, self._heavy_rest.display = not heavy, heavy
            if heavy:
                self._heavy_rest.update(Content(rest))
            else:
                await self._rest.update(rest)

    @property
    def _is_full(self) -> bool:
        return self._drawn > WEIGHT or len(self._shown) > PLAIN_ABOVE

    def _pieces(self, blocks: list[str]) -> Iterator[tuple[bool, str]]:
        """Join blocks to pieces of plain text (True) or Markdown (False) that one widget takes each."""
        held, held_weight, was_plain = "", 0, False
        weights = [weight(block) for block in blocks]
        # Too much in all: its beginning would be drawn only to be replaced by the source.
        self._drawn += sum(weights)
        for block, more in zip(blocks, weights, strict=True):
            is_plain = self._is_full or self._is_cut
            self._is_cut = False
            if held and (is_plain != was_plain or (not is_plain and held_weight + more > PIECE_WEIGHT)):
                yield was_plain, held
                held, held_weight = "", 0
            held, held_weight, was_plain = held + block, held_weight + more, is_plain
        if held:
            yield was_plain, held

    async def _add_markdown(self, text: str) -> None:
        self._tail = None
        await self.mount(AnswerMarkdown(sanitize(text)), before=self._rest)

    async def _add_plain(self, text: str) -> None:
        """Add complete lines; every few of them have a widget."""
        at = 0
        while at < len(text):
            if self._tail is None or len(self._tail_text) >= TAIL_LENGTH:
                self._tail, self._tail_text = Static(markup=False, classes="chat-block"), ""
                await self.mount(self._tail, before=self._rest)
            room = at + TAIL_LENGTH - len(self._tail_text)
            end = len(text) if len(text) <= room else (text.find("\n", room) + 1 or len(text))
            self._tail_text += text[at:end]
            self._tail.update(Content(sanitize(self._tail_text.removesuffix("\n"))))
            at = end


def _is_heavy(rest: str) -> bool:
    return len(rest) > REST_LENGTH or weight(rest) > REST_WEIGHT


_NO_CALLS: Final = AnswerPart("", 0, 0)


class MessageView(Vertical):
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
    ) -> None:
        """``now`` returns the stopwatch of the conversation."""
        super().__init__(classes=f"chat-message -{entry.role}")
        self.entry = entry
        self._now = now
        self.live = live
        self._author = author
        self._glyphs = glyphs
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
    def calls(self) -> list[ToolTree]:
        """The calls of an answer, in one widget for each place in the text."""
        return [widget for _, widget in self._content if isinstance(widget, ToolTree)]

    async def on_mount(self) -> None:
        """Colour the source of Markdown that is too heavy to be drawn."""
        if not self.live:
            await self._colour()

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
        if self.live:
            return LiveText()
        if entry.role == "assistant" and entry.text and is_light(entry.text):
            return AnswerMarkdown(sanitize(part.text))
        return Static(Content(sanitize(shown(part.text))), classes="chat-plain")

    async def _colour(self) -> None:
        for part, widget in self._content:
            if self.entry.role == "assistant" and self.entry.text and isinstance(widget, Static):
                widget.update(await asyncio.to_thread(source_of, part.text))

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
                case LiveText() as text:
                    await text.show(part.text)
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
        calls = self.calls
        after: Widget = self.reasoning or self._heading
        old = [widget for _, widget in self._content if not isinstance(widget, ToolTree)]
        self._content = []
        with self.app.batch_update():
            for part in self._parts():
                widget: Widget
                if not part.text and calls:
                    widget = tree = calls.pop(0)
                    tree.limit(part)
                    tree.settle()
                else:
                    widget = self._made(part)
                    await self.mount(widget, after=after)
                self._content.append((part, widget))
                after = widget
            await remove([*old, *calls])
            await self.mount(*self._pictures())
        await self._colour()

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
        whole = f", {entry.spent.text} in all" if entry.spent != entry.cost else ""
        parts.append(entry.cost.words + whole)
    if entry.tokens_in is not None or entry.tokens_out is not None:
        parts.append(f"{tokens(entry.tokens_in or 0)} in {tokens(entry.tokens_out or 0)} out")
    return tuple(parts)
