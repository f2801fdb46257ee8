"""What is typed, pasted, answered, copied and exported keeps its joiners, soft hyphens and marks."""

from pathlib import Path

import pytest
from support import echo_agent
from support.chat import Chat, chat, server
from support.fake_fleet import FakeFleet, desk
from support.waiting import until
from textual.events import Key, Paste
from textual.widgets import Input

from pallas_tui.app import Workbench
from pallas_tui.chat.chat_export import ConversationFacts, exported
from pallas_tui.launch import late_panes
from pallas_tui.settings import Settings

__all__ = ["chat", "server"]

PERSIAN, HINDI, SINHALA, SOFT = "می\u200cخواهم", "क्\u200dष", "ක්\u200dෂ", "Donau\u00addampf"
TEXT = f"{PERSIAN} {HINDI} {SINHALA} {SOFT} \u200fא 👩\u200d💻 🏴\U000e0067\U000e0062\U000e007f"


@pytest.mark.slow
async def test_a_pasted_text_and_its_answer_stay_as_they_are(
    chat: Chat,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(echo_agent, "HOSTILE", TEXT)
    chat.app.post_message(Paste(TEXT))
    await chat.until(lambda: chat.prompt.text == TEXT)
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.conversation.run is None and len(chat.texts()) == 2)
    assert chat.server.calls[-1]["message"] == TEXT
    await chat.ask("hostile")
    assert chat.texts()[-1] == TEXT
    for form in ("md", "json"):
        assert TEXT in exported(chat.conversation, ConversationFacts("echo"), form)
    # On the screen each of them is seen.
    await chat.until(lambda: "\\u200c" in chat.app.screen_text() and "\\U000e0067" in chat.app.screen_text())
    copied: list[str] = []
    monkeypatch.setattr(chat.app, "copy_to_clipboard", copied.append)
    await chat.pilot.press("escape", "y")
    await chat.until(lambda: copied)
    assert copied == [TEXT]


@pytest.mark.slow
async def test_a_typed_joiner_is_text(tmp_path: Path) -> None:
    fleet = FakeFleet(desk())
    app = Workbench(lambda: fleet, name="desk", late=late_panes(tmp_path / "pallas.log"), settings=Settings())
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: app.main.query("#chat-start"), pilot)
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.focused, Input), pilot)
        line = app.focused
        assert isinstance(line, Input)
        for character in PERSIAN + SOFT:
            app.post_message(Key(character if character.isalnum() else f"key_{ord(character)}", character))
        await until(lambda: line.value == PERSIAN + SOFT, pilot)
