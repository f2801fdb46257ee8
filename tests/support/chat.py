"""A chat pane over an agent that really answers, and the usual looks at it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from pallas.model import AgentSnapshot
from pallas_tui.chat.conversation import ChatConversation
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.conversation_lines import RunLine
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.message_view import MessageView
from pallas_tui.widgets.chat.prompt_area import PromptArea

from .echo_agent import EchoAgent
from .fake_fleet import agent
from .notices import notices_of
from .pane_app import PaneApp
from .waiting import until


class Chat:
    """A chat pane in an application, an agent to talk to, and the usual looks at it."""

    def __init__(self, app: PaneApp, pane: ChatPane, pilot: Pilot[None], server: EchoAgent) -> None:
        self.app, self.pane, self.pilot, self.server = app, pane, pilot, server

    @property
    def view(self) -> ConversationView:
        view = self.pane._current
        assert view is not None
        return view

    @property
    def conversation(self) -> ChatConversation:
        return self.view.conversation

    @property
    def prompt(self) -> PromptArea:
        return self.view.query_one(PromptArea)

    @property
    def line(self) -> RunLine:
        return self.view.query_one(RunLine)

    def snapshot(self, **changes: object) -> AgentSnapshot:
        return agent("echo", self.server.port, **{"url": self.server.url, **changes})

    async def until(self, condition: Any, timeout: float = 90) -> Any:
        return await until(condition, self.pilot, timeout)

    async def type(self, text: str) -> None:
        self.prompt.insert(text)
        await self.pilot.press("enter")

    async def ask(self, text: str) -> None:
        await self.type(text)
        await self.until(lambda: self.conversation.run is None and self.texts()[-1] != text)
        await self.until(lambda: [view.entry for view in self.shown()] == self.conversation.entries)

    def texts(self) -> list[str]:
        return [entry.text for entry in self.conversation.entries]

    def shown(self) -> list[MessageView]:
        return list(self.view.query(MessageView))

    def notices(self) -> str:
        return "\n".join(notice.message for notice in notices_of(self.app))


@pytest.fixture
async def server() -> AsyncIterator[EchoAgent]:
    async with EchoAgent() as server:
        yield server


@pytest.fixture
async def chat(server: EchoAgent, tmp_path: Path) -> AsyncIterator[Chat]:
    pane = ChatPane(base=tmp_path, stopwatch=lambda: pane._now)
    app = PaneApp(pane)
    async with app.run_test(size=(100, 30)) as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot(), agent("other", server.port, url=server.url))
        await chat.until(lambda: chat.view.is_mounted and chat.prompt.has_focus)
        yield chat
