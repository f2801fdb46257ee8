"""The prompt of a conversation."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

from textual import events
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.suggester import Suggester
from textual.widgets import Input, TextArea

from pallas.safe_text import without_controls

from ...actions import bindings
from ...chat.prompt_history import PromptHistory, Walk
from ...pictures.images import complete_path, names_images, pasted_images
from ..pane import PaneUsed

_LOOK: Final = 2.0
"""Seconds that checking pasted paths may take; after that they are text."""

# Keys that change the text, or move the cursor.
_IN_ORDER: Final = ("submit", "new_line", "delete_", "cut", "undo", "redo", "cursor_")


class PromptArea(TextArea):
    """Several lines; enter sends. Up on the first line and down on the last walk through the history."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("prompt")

    class ImagesPasted(Message):
        """The pasted or dropped text names image files and nothing else."""

        def __init__(self, paths: tuple[Path, ...]) -> None:
            super().__init__()
            self.paths = paths

    class PasteAsked(Message):
        """The clipboard should be inserted into ``prompt``, or attached."""

        def __init__(self, prompt: "PromptArea") -> None:
            super().__init__()
            self.prompt = prompt

    class TakeBack(Message):
        """Backspace with nothing to delete: the last attachment is removed."""

    def __init__(
        self,
        history: PromptHistory,
        send: Callable[[str], bool],
        complete: Callable[[str, int], str | None] = lambda line, by: None,
        above: Callable[[], bool] = lambda: False,
    ) -> None:
        """``send`` takes the text, at once, or returns False: then it stays here.

        ``complete`` completes a command, or takes the next candidate (1) or the one before (-1); None if
        there is nothing to complete.
        ``above`` goes to what is above an empty prompt; it returns False when nothing is.
        """
        super().__init__(
            classes="chat-prompt", compact=True, highlight_cursor_line=False, tab_behavior="focus"
        )
        self._history = history
        self._send = send
        self._complete = complete
        self._above = above
        self._walk: Walk | None = None

    def on_unmount(self) -> None:
        """Let go of the conversation: the application holds this widget until its theme changes."""
        self._send, self._complete, self._above = (
            (lambda text: False),
            (lambda line, by: None),
            (lambda: False),
        )

    def validate_placeholder(self, placeholder: str | Content) -> Content:
        """Escape markup: the placeholder contains an agent's name."""
        return Content(placeholder) if isinstance(placeholder, str) else placeholder

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable the text area's F6, which selects a line; here the key opens the credentials."""
        return action != "select_line"

    def action_submit(self) -> None:
        """Send the text."""
        text = self.text
        if self._send(text):
            self._history.add(text)
            self._walk = None
            self.load_text("")
            self.post_message(PaneUsed())

    def action_paste_clipboard(self) -> None:
        """Paste the image or the text on the clipboard."""
        if not self.read_only:
            self.post_message(self.PasteAsked(self))

    def action_new_line(self) -> None:
        """Insert a line break instead of sending."""
        start, end = self.selection
        self._replace_via_keyboard("\n", start, end)

    def action_cursor_up(self, select: bool = False) -> None:
        """Go one line up, or one prompt back."""
        if select or self._row() > 0:
            super().action_cursor_up(select)
            return
        if self._walk is None:
            if self._take_candidate(-1) or (not self.text and self._above()):
                return
            self._walk = self._history.walk()
        self._recall(self._walk.older(self.text))

    def action_cursor_down(self, select: bool = False) -> None:
        """Go one line down, or one prompt forward."""
        if not select and self._walk is None and self._take_candidate(1):
            return
        if select or self._row() < self.wrapped_document.height - 1 or self._walk is None:
            super().action_cursor_down(select)
            return
        self._recall(self._walk.newer())

    def action_delete_left(self) -> None:
        """Delete a character, or the last attachment when there is none."""
        if self.text:
            super().action_delete_left()
        else:
            self.post_message(self.TakeBack())

    def _take_candidate(self, by: int) -> bool:
        """Complete the command; return False if there is nothing to complete."""
        longer = self._complete(self.text, by)
        if longer is not None and longer != self.text:
            self._recall(longer)
        return longer is not None

    def _recall(self, text: str | None) -> None:
        if text is not None:
            self.load_text(text)
            self.move_cursor(self.document.end)

    def _row(self) -> int:
        """Return the line of the screen that the cursor is on, counted from the first of the text."""
        return self.wrapped_document.location_to_offset(self.cursor_location).y

    async def _on_key(self, event: events.Key) -> None:
        # Here and not as a binding: a binding acts before letters typed just ahead of the key are
        # inserted, or after those behind it. The text area, whose turn is next, would break the line.
        if event.key != "enter" and event.is_printable:
            return
        by = {"tab": 0, "shift+tab": -1}.get(event.key)
        if by is not None and self._take_candidate(by):
            event.stop()
            event.prevent_default()
            return
        bound = self.screen.active_bindings.get(event.key)
        if bound is not None and bound.node is self and bound.binding.action.startswith(_IN_ORDER):
            event.stop()
            event.prevent_default()
            await self.run_action(bound.binding.action)

    async def _on_paste(self, event: events.Paste) -> None:
        if self.read_only:
            return
        text = event.text
        # The text area, whose turn is next, inserts this. A terminal sends a carriage return for each line.
        event.text = without_controls(text.replace("\r\n", "\n").replace("\r", "\n"))
        if not names_images(text.strip()):
            return
        # The check for files may wait for slow disks; keys typed behind wait for this.
        with suppress(TimeoutError):
            paths = await asyncio.wait_for(asyncio.to_thread(pasted_images, text), _LOOK)
            if paths:
                event.stop()
                event.prevent_default()  # else the text area, whose turn is next, would insert the path
                self.post_message(self.ImagesPasted(paths))


class _PathSuggester(Suggester):
    def __init__(self, base: Path) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._base = base

    async def get_suggestion(self, value: str) -> str | None:
        # A folder may be on a slow disk: never on the loop that draws.
        return await asyncio.to_thread(complete_path, value, self._base)


class PathLine(Input):
    """One line for the path of an image, with completion; tab takes the suggestion."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("path_line")

    class PathGiven(Message):
        """A path was entered."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Closed(Message):
        """The user cancelled the attachment."""

    def __init__(self, base: Path) -> None:
        super().__init__(
            placeholder="path of an image: tab completes, enter attaches, escape leaves",
            suggester=_PathSuggester(base),
            compact=True,
            classes="chat-path",
        )
        self.display = False

    def open(self) -> None:
        """Show the line, empty, and focus it."""
        self.value = ""
        self.display = True
        self.focus()

    def action_close(self) -> None:
        """Hide the line."""
        self.display = False
        self.post_message(self.Closed())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Post the path; an empty one closes the line."""
        event.stop()
        if text := self.value.strip():
            self.post_message(self.PathGiven(text))
        else:
            self.action_close()
