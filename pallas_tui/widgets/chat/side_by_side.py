"""The same message to several agents at once, their conversations side by side."""

from abc import abstractmethod

from textual import on
from textual.widgets import TextArea

from pallas.commands import read

from ...chat.conversation import ChatConversation
from ...chat.mcp_talk import Options
from .chat_dialogs import MAX_SIDE
from .chat_keys import ChatActions
from .conversation_deck import Deck, SharedPrompt
from .conversation_view import ConversationView
from .prompt_area import PromptArea


class SideBySide(ChatActions):
    """The conversations that are side by side, and the prompt that they share."""

    _shared: SharedPrompt

    @abstractmethod
    def _make(
        self, name: str, conversation: ChatConversation | None = None, options: Options | None = None
    ) -> ConversationView | None:
        """Return a new conversation view, None when there is no room for another."""

    @abstractmethod
    async def _mount(self, views: list[ConversationView], wanted: bool) -> None:
        """Mount them, and show them."""

    @abstractmethod
    def _arrange(self) -> None:
        """Update which of them are visible."""

    @property
    def _together(self) -> bool:
        return self._current in self._beside

    def begin_beside(self, names: tuple[str, ...]) -> None:
        """Ask these agents side by side, each in a conversation of its own."""
        views = [view for name in names[:MAX_SIDE] if (view := self._make(name)) is not None]
        if len(views) < 2:
            return
        self.end_beside()
        self._beside = views
        self.run_worker(self._mount(views, True), group="open", description="open chats side by side")

    def end_beside(self) -> None:
        """Make each column a normal tab again."""
        for view in self._beside:
            view.set_column(False)
            view.beside = ""
        self._beside = []
        self._arrange()

    @on(ConversationView.AskSideBySide)
    def _on_beside(self, event: ConversationView.AskSideBySide) -> None:
        event.stop()
        unknown = [name for name in event.agents if all(agent.name != name for agent in self._agents)]
        if unknown:
            self.app.notify(f"There is no agent {unknown[0]}.", severity="warning", markup=False)
        elif not event.agents:
            self.end_beside()
            self.focus_pane()
        elif not 2 <= len(set(event.agents)) <= MAX_SIDE:
            self.app.notify("Choose two to four different agents.", severity="warning", markup=False)
        else:
            self.begin_beside(tuple(dict.fromkeys(event.agents)))

    def _send_to_all(self, text: str) -> bool:
        typed = read(text)
        if typed.command:
            if self._current is not None:
                self._current.run_command(typed, self._shared)
            return False
        if not text.strip():
            return False
        taken = [view.offer(typed.rest) for view in self._beside]
        return any(taken)

    def _complete(self, line: str, by: int = 0) -> str | None:
        return self._current.completer.complete(line, by) if self._current is not None else None

    @on(TextArea.Changed)
    def _on_written(self, event: TextArea.Changed) -> None:
        if event.text_area is self._shared and self._current is not None:
            self._current.show_hint(self._shared.text)

    @on(PromptArea.ImagesPasted)
    async def _on_pasted(self, event: PromptArea.ImagesPasted) -> None:
        event.stop()
        for view in self._beside:
            for path in event.paths:
                await view.tray.take(path)

    @on(Deck.Resized)
    def _on_deck_resized(self, event: Deck.Resized) -> None:
        event.stop()
        if self._together:
            self._arrange()
