"""Actions of the chat on images, on parts of a message, and with the user's editor."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt
from textual import on

from pallas.model import Fault
from pallas.safe_text import one_line

from ...chat.conversation import ChatEntry, last_answer
from ...clipboard import copy
from ...editor import edit
from ...text import UNICODE
from ..pane import Pane
from .prompt_area import PromptArea

if TYPE_CHECKING:
    from .conversation_view import ConversationView


class PartsPane(Pane):
    """The base of the chat pane. The conversation in view is ``_current``, None while there is none."""

    _current: "ConversationView | None" = None

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's word
        super().__init__(id=id)
        self._walk = BlockWalk()

    def action_pick(self) -> None:
        """Choose images among the files."""
        if self._current is not None:
            self._current.tray.pick()

    def action_open_editor(self) -> None:
        """Edit the prompt in the user's own editor."""
        if self._current is None:
            return
        prompt = self._current.query_one(PromptArea)
        if prompt.disabled:
            self.app.notify("You cannot write now.", severity="warning")
            return
        try:
            text = edit(self.app, prompt.text)
        except Fault as fault:
            self.app.notify(fault.message, severity="error", markup=False)
        else:
            prompt.load_text(text)
            prompt.move_cursor(prompt.document.end)
        self._current.focus_prompt()

    async def action_copy_code(self) -> None:
        """Copy the next block of code of the selected message, else of the last answer."""
        entry = self._meant()
        blocks = await asyncio.to_thread(code_blocks, entry.text) if entry is not None else ()
        if entry is None or not blocks:
            self.app.notify("There is no block of code in that message.")
            return
        index = self._walk.next(entry.key, len(blocks))
        result = await copy(self.app, blocks[index].code)
        kind = f" {blocks[index].language}" if blocks[index].language else ""
        self.app.notify(f"Block {index + 1} of {len(blocks)}{kind}: {result}", markup=False)

    def action_see_pictures(self) -> None:
        """Show the pictures of the selected message, else the newest ones."""
        from ..dialogs.picture_dialog import PictureScreen

        entry = self._meant()
        if self._current is not None and (entry is None or not entry.attachments):
            entries = reversed(self._current.conversation.entries)
            pointed = self._current.transcript.selected is not None
            entry = None if pointed else next((each for each in entries if each.attachments), None)
        if entry is None or not entry.attachments:
            self.app.notify("There is no picture in that message.")
            return
        shown, glyphs = entry, getattr(self.app, "glyphs", UNICODE)
        self.app.push_screen(PictureScreen(lambda: shown.attachments, 0, glyphs))

    def _meant(self) -> ChatEntry | None:
        if self._current is None:
            return None
        pointed = self._current.transcript.selected
        return pointed.entry if pointed is not None else last_answer(self._current.conversation.entries)

    @on(PromptArea.PasteAsked)
    def _on_paste_asked(self, event: PromptArea.PasteAsked) -> None:
        event.stop()
        if self._current is not None:
            self._current.tray.paste(event.prompt)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One block; ``language`` is empty where none is named."""

    language: str
    code: str


def code_blocks(text: str) -> tuple[CodeBlock, ...]:
    """The fenced and indented blocks of Markdown ``text``, in order. Takes time: call in a thread."""
    tokens = MarkdownIt("commonmark", {"html": False}).parse(text)
    return tuple(
        CodeBlock(one_line(token.info, 30).split(" ")[0], token.content.removesuffix("\n"))
        for token in tokens
        if token.type in ("fence", "code_block") and token.content.strip()
    )


class BlockWalk:
    """Which block is copied next: each block of a message in turn, then the first again."""

    def __init__(self) -> None:
        self._message: object = None
        self._at = -1

    def next(self, message: object, count: int) -> int:
        """Return the index of the next one of ``count``, which is not 0, in ``message``."""
        self._at = (self._at + 1) % count if message == self._message else 0
        self._message = message
        return self._at
