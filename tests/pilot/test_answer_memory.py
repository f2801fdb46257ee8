"""What was shown of answers is let go of when it is cleared, and when its tab is closed."""

import gc
import weakref
from base64 import b64encode
from collections import Counter

import pytest
from textual.signal import Signal
from textual.widget import Widget

from pallas_tui.chat.conversation import ChatEntry
from pallas_tui.pictures.images import ChatPicture
from pallas_tui.widgets.chat.conversation_view import ConversationView
from tests.support.chat import Chat, chat, server
from tests.support.pictures import picture

__all__ = ["chat", "server"]

RICH = "# Head\n\n- one\n- two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\n"


@pytest.mark.slow
async def test_clear_lets_go_of_every_widget_of_the_answers(chat: Chat) -> None:
    left = await answered(chat)
    await chat.type("/clear")
    await chat.until(lambda: chat.conversation.untouched and not chat.shown())
    await chat.until(lambda: gone(left))


@pytest.mark.slow
async def test_a_closed_tab_lets_go_of_every_widget_of_its_answers(chat: Chat) -> None:
    left = await answered(chat)
    chat.pane.open_agent("other")
    await chat.until(lambda: chat.conversation.agent == "other" and chat.prompt.has_focus)
    chat.pane.open_agent("echo")
    await chat.until(lambda: chat.conversation.agent == "echo" and chat.prompt.has_focus)
    await chat.pilot.press("alt+w")
    await chat.until(
        lambda: chat.conversation.agent == "other" and len(chat.pane.query(ConversationView)) == 1
    )
    await chat.until(lambda: gone(left))


async def answered(chat: Chat) -> list[weakref.ref[Widget]]:
    """Ten answers, one too heavy to be drawn and one with a picture, on the screen; their widgets."""
    rows = chat.conversation.entries
    rows += [ChatEntry("assistant", RICH * 2, 1.0, key=1_000 + number) for number in range(10)]
    rows.append(ChatEntry("assistant", RICH * 100, 1.0, key=2_000))
    shot = ChatPicture(None, "a.png", "image/png", 100, b64encode(picture()).decode(), (64, 48))
    rows.append(ChatEntry("assistant", "a picture", 1.0, key=2_001, attachments=(shot,)))
    chat.app.settings_changed = Signal(chat.app, "settings")  # type: ignore[attr-defined]
    chat.view.touch()
    await chat.until(lambda: len(chat.shown()) == 12)
    await chat.until(lambda: all(view.region for view in chat.shown()[-2:]))
    return [weakref.ref(widget) for view in chat.shown() for widget in view.walk_children(with_self=True)]


def gone(left: list[weakref.ref[Widget]]) -> bool:
    """Whether none of them is there."""
    gc.collect()
    there = Counter(type(widget).__name__ for ref in left if (widget := ref()) is not None)
    assert not there, there
    return True
