import asyncio
import base64
import re
from pathlib import Path

import pytest
from support.chat import Chat, chat, server
from support.echo_agent import EchoAgent
from support.fake_fleet import agent
from support.pane_app import PaneApp
from support.waiting import until
from textual.events import Key, Paste
from textual.widgets import Static

from pallas.model import AgentState, Health, HealthStatus
from pallas_tui.chat.conversation import KEEP
from pallas_tui.chat.message_queue import MAX_QUEUED
from pallas_tui.chat_client import AgentReply, ChatClient
from pallas_tui.widgets.chat import ChatPane, conversation_view
from pallas_tui.widgets.chat.agent_chooser import AgentChooser, ChooserScreen
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.picture_tray import Chip
from pallas_tui.widgets.chat.prompt_area import PathLine
from pallas_tui.widgets.status_line import StatusLine

assert chat
assert server

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 1000

SLOW = 120
"""Seconds for a screen of 200 messages."""


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour for the second escape, in place of three seconds."""
    monkeypatch.setattr(conversation_view, "SURE_WITHIN", 3600.0)


async def test_the_front_agent_is_ready_to_be_written_to(chat: Chat) -> None:
    assert chat.conversation.agent == "echo"
    assert "A new conversation with echo" in chat.app.screen_text()
    await chat.ask("hello there")
    assert chat.texts() == ["hello there", "you said: hello there"]
    await chat.until(lambda: "you said: hello there" in chat.app.screen_text())
    assert chat.prompt.text == ""
    assert chat.server.calls[0]["stream_text"] is True


async def test_a_line_of_the_transcript_is_no_longer_than_one_reads(chat: Chat) -> None:
    words = " ".join(["word"] * 60)
    await chat.ask(words)
    await chat.pilot.resize_terminal(200, 50)
    await chat.until(lambda: chat.view.size.width == 200)
    await chat.until(lambda: chat.app.screen_text().count("word") == 120)
    lines = [line.strip() for line in chat.app.screen_text().splitlines() if "word" in line]
    assert max(map(len, lines)) in range(95, 101)
    assert chat.prompt.outer_size.width == 200


async def test_a_conversation_with_code_says_where_its_form_is(chat: Chat) -> None:
    assert "w in the list of agents" not in chat.app.screen_text()
    chat.app.feed(chat.snapshot(kind="handler"))
    await chat.until(lambda: "w in the list of agents (1) opens a form" in chat.app.screen_text())


async def test_the_pane_talks_in_the_older_protocol_too(server: EchoAgent) -> None:
    pane = ChatPane(connect=lambda url, handle, **_: ChatClient(url, handle, era="legacy"))
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot())
        await chat.until(lambda: chat.prompt.has_focus)
        await chat.ask("work")
        assert chat.texts()[-1] == "did the work: work"
        assert chat.conversation.entries[-1].steps == 3


@pytest.mark.slow
async def test_the_status_line_lives_from_question_to_result(chat: Chat) -> None:
    # PI-25
    await chat.type("hold")
    await chat.until(lambda: chat.line.text == "echo is writing")
    assert chat.line.running
    run = chat.conversation.run
    assert run is not None
    chat.conversation.hear(run, "docs/search: started")
    await chat.until(lambda: chat.line.text == "docs/search: started")
    chat.conversation.hear(run, "docs/search: completed")
    await chat.until(lambda: chat.line.text == "docs/search: completed")
    assert chat.line.running
    chat.app.feed(later=3)
    await chat.until(lambda: "  3 s" in chat.app.screen_text())
    chat.server.release()
    await chat.until(lambda: not chat.line.running)
    assert chat.line.text == ""


async def test_text_is_shown_as_it_comes_and_the_answer_replaces_it(chat: Chat) -> None:
    # PI-26
    await chat.type("hold")
    await chat.until(lambda: "so far so good" in chat.app.screen_text())
    chat.server.release()
    await chat.until(lambda: "released" in chat.app.screen_text())
    assert "so far" not in chat.app.screen_text()
    assert len(chat.shown()) == 2


@pytest.mark.slow
async def test_markdown_is_drawn_and_markup_is_not(chat: Chat) -> None:
    await chat.ask("markdown")
    await chat.until(lambda: "[bold red]this[/] <b>tag</b>" in chat.app.screen_text())
    text = chat.app.screen_text()
    for drawn in ("What was found\n", "• Acme", "│ Acme     │ 12.00  │", ' print("hello")'):
        assert drawn in re.sub(" +\n", "\n", text)
    for source in ("# What", "**", "```", "|---"):
        assert source not in text


async def test_ctrl_z_in_the_prompt_undoes(chat: Chat) -> None:
    chat.prompt.insert("a text")
    await chat.pilot.press("ctrl+z")
    await chat.until(lambda: chat.prompt.text == "")


@pytest.mark.slow
async def test_a_huge_answer_is_drawn_as_it_comes(chat: Chat) -> None:
    run = chat.conversation.begin("list", (), 1.0)
    text = "".join(f"- item **{number}** [red]x[/]\n" for number in range(1_000))
    chat.conversation.hear(run, f"echo » {text}")
    await chat.until(lambda: "• item 999 [red]x[/]" in chat.app.screen_text())
    chat.conversation.answer(run, AgentReply(text=text, seconds=1.0), 2.0)
    await chat.until(lambda: not chat.shown()[-1].live and "• item 999" in chat.app.screen_text())
    assert len(chat.shown()[-1].query("*")) == 2
    await chat.pilot.press("escape", "y")
    await chat.until(lambda: chat.app.clipboard == text)


@pytest.mark.slow
async def test_a_link_is_copied_and_never_opened(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(chat.app, "open_url", lambda url, **_: opened.append(url))
    await chat.ask("markdown")
    await chat.until(lambda: "See the page and" in chat.app.screen_text())
    lines = chat.app.screen_text().splitlines()
    y = next(number for number, line in enumerate(lines) if "See the page and" in line)
    await chat.pilot.click(offset=(lines[y].index("the page") + 2, y))
    await chat.until(lambda: "https://example.invalid/page" in chat.notices())
    assert chat.app.clipboard == "https://example.invalid/page"
    assert opened == []


@pytest.mark.slow
async def test_hostile_text_reaches_neither_the_terminal_nor_an_action(chat: Chat) -> None:
    await chat.ask("hostile")
    await chat.until(lambda: "[@click=app.quit]quit[/]" in chat.app.screen_text())
    for character in "\x1b\x07\u202e":
        assert character not in chat.app.screen_text()


async def test_how_it_went_stands_beside_the_answer(chat: Chat) -> None:
    await chat.ask("work")
    await chat.until(lambda: "3 steps · 1 tool call" in chat.app.screen_text())


async def test_the_bottom_line_offers_what_can_be_done_now(chat: Chat) -> None:
    def bottom() -> str:
        return chat.app.screen_text().splitlines()[-1]

    await chat.app.mount(StatusLine())
    assert "^k cancel" not in bottom()
    await chat.type("hold")
    await chat.until(lambda: "^k cancel" in bottom())
    chat.server.release()
    await chat.until(lambda: "^r again" in bottom())
    assert "^k cancel" not in bottom()
    chat.conversation.clear()
    await chat.until(lambda: "^r again" not in bottom())


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("keys", [("ctrl+k",), ("escape", "escape")])
async def test_a_run_is_cancelled_here_and_on_the_server(chat: Chat, keys: tuple[str, ...]) -> None:
    await chat.type("hold")
    await chat.until(lambda: "so far so good" in chat.app.screen_text())
    await chat.pilot.press(*keys)
    await chat.until(lambda: chat.conversation.run is None and chat.server.cancelled == 1)
    assert chat.conversation.entries[-1].text == "so far so good"
    await chat.until(lambda: "cancelled ·" in chat.app.screen_text())
    await chat.ask("and now")
    assert chat.texts()[-1] == "you said: and now"


@pytest.mark.usefixtures("patient")
async def test_one_escape_only_asks(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    await chat.pilot.press("escape")
    await chat.until(lambda: "press escape again to cancel" in chat.app.screen_text())
    assert chat.conversation.run is not None
    chat.server.release()
    await chat.until(lambda: chat.texts()[-1:] == ["released"])


@pytest.mark.slow
async def test_a_question_whether_to_cancel_lasts_its_whole_time_also_when_it_is_asked_again(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_view, "SURE_WITHIN", 3.0)
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    await chat.pilot.press("escape", "escape")
    await chat.until(lambda: chat.conversation.run is None)
    monkeypatch.setattr(conversation_view, "SURE_WITHIN", 3600.0)
    first_is_over = asyncio.Event()
    chat.view.set_timer(4.0, first_is_over.set)
    await chat.type("hold")
    await chat.until(lambda: chat.conversation.run is not None)
    await chat.pilot.press("escape")
    await chat.until(lambda: "press escape again to cancel" in chat.app.screen_text())
    await chat.until(first_is_over.is_set)
    assert chat.view.sure
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.conversation.run is None and chat.server.cancelled == 2)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
async def test_escape_steps_back_before_it_cancels_and_no_text_is_lost(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.pilot.press("escape")
    await chat.pilot.press("escape")
    assert chat.prompt.has_focus  # and back
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    chat.prompt.insert("a draft")
    await chat.pilot.press("escape")
    assert chat.view.transcript.has_focus
    chat.view._unsure()  # as after 3 s
    await chat.pilot.press("k")
    await chat.until(lambda: chat.view.transcript.selected is not None)
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.view.transcript.selected is None)
    await chat.until(lambda: "press escape again" not in chat.app.screen_text())
    await chat.pilot.press("escape")
    assert chat.prompt.has_focus
    await chat.until(lambda: "press escape again to cancel" in chat.app.screen_text())
    assert chat.conversation.run is not None
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.conversation.run is None and chat.server.cancelled == 1)
    assert chat.prompt.has_focus
    assert chat.prompt.text == "a draft"


async def test_ctrl_k_deletes_to_the_end_of_the_line_while_nothing_runs(chat: Chat) -> None:
    chat.prompt.insert("one two")
    chat.prompt.move_cursor((0, 3))
    await chat.pilot.press("ctrl+k")
    assert chat.prompt.text == "one"


async def test_an_error_says_what_and_a_key_sends_again(chat: Chat) -> None:
    await chat.ask("fault")
    await chat.until(lambda: "the model is overloaded" in chat.app.screen_text())
    assert "ctrl+r sends it again" in chat.app.screen_text()
    await chat.pilot.press("ctrl+r")
    await chat.until(lambda: len(chat.server.calls) == 2 and chat.conversation.run is None)
    assert [call["message"] for call in chat.server.calls] == ["fault", "fault"]
    assert [entry.role for entry in chat.conversation.entries] == ["user", "error"]


async def test_an_agent_that_is_gone_is_told_with_what_to_do(chat: Chat) -> None:
    await chat.server.__aexit__()
    await chat.ask("hello")
    assert chat.conversation.entries[-1].role == "error"
    await chat.until(lambda: "Nothing answers at" in chat.app.screen_text())
    assert chat.prompt.has_focus


async def test_an_agent_in_error_cannot_be_written_to(chat: Chat) -> None:
    # PI-17
    chat.app.feed(chat.snapshot(health=Health(HealthStatus.ERROR, "the provider refuses the key")))
    await chat.until(lambda: "the provider refuses the key" in chat.app.screen_text())
    assert chat.prompt.disabled
    await chat.pilot.press("x", "enter")
    assert chat.server.calls == []
    chat.app.feed(chat.snapshot())
    await chat.until(lambda: chat.prompt.has_focus)
    assert "refuses" not in chat.app.screen_text()


async def test_a_draft_survives_while_the_agent_cannot_be_written_to(chat: Chat) -> None:
    chat.prompt.insert("half a thought")
    chat.app.feed(chat.snapshot(state=AgentState.STOPPED))
    await chat.until(lambda: chat.prompt.disabled)
    chat.app.feed(chat.snapshot())
    await chat.until(lambda: chat.prompt.has_focus)
    assert chat.prompt.text == "half a thought"


async def test_an_agent_that_becomes_ready_the_moment_one_looks_can_be_written_to(chat: Chat) -> None:
    chat.app.feed(chat.snapshot(state=AgentState.STOPPED))
    await chat.until(lambda: chat.prompt.disabled)
    chat.app.screen.set_focus(None)
    ready = agent("echo", chat.server.port, url=chat.server.url)
    # In one go, as when a frame comes right behind the key: no widget has heard of its focus yet.
    chat.view.focus_prompt()
    assert chat.app.screen.focused is chat.view.transcript
    chat.view.see(ready)
    await chat.pilot.press("h", "i")
    assert chat.prompt.text == "hi"


async def test_a_conversation_that_opens_by_itself_takes_no_place_from_one_that_was_asked_for(
    server: EchoAgent,
) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        chat = Chat(app, pane, pilot, server)
        late, mount = asyncio.Event(), pane._mount

        async def slowly(views: list[ConversationView], wanted: bool) -> None:
            if not wanted:
                await late.wait()
            await mount(views, wanted)

        pane._mount = slowly  # type: ignore[method-assign]
        app.feed(chat.snapshot())
        await chat.until(lambda: pane._views)
        pane.new_conversation("echo", wanted=True)
        await chat.until(lambda: pane._current is pane._views[1])
        late.set()
        await chat.until(lambda: pane._views[0].is_mounted)
        await chat.ask("hello")
        assert chat.view is pane._views[1]
        assert not pane._views[0].display


@pytest.mark.slow
async def test_enter_sends_and_alt_enter_breaks_the_line(chat: Chat) -> None:
    await chat.pilot.press("a", "alt+enter", "b", "ctrl+j", "c", "enter")
    await chat.until(lambda: chat.server.calls)
    assert chat.server.calls[0]["message"] == "a\nb\nc"
    await chat.pilot.press("enter", "space", "enter")
    assert len(chat.server.calls) == 1


async def test_keys_that_come_in_one_burst_keep_their_order(chat: Chat) -> None:
    for character in "hello":
        chat.app.post_message(Key(character, character))
    chat.app.post_message(Key("enter", "\r"))
    for character in "next":
        chat.app.post_message(Key(character, character))
    await chat.until(lambda: chat.server.calls and chat.prompt.text == "next")
    assert chat.server.calls[0]["message"] == "hello"


async def test_what_is_typed_right_after_the_line_was_emptied_stays(chat: Chat) -> None:
    for key in (*"wrong", "ctrl+u", *"right", "home", *"all "):
        chat.app.post_message(Key("space" if key == " " else key, key if len(key) == 1 else None))
    await chat.until(lambda: chat.prompt.text == "all right")


async def test_the_keys_of_the_prompt_can_be_changed(chat: Chat) -> None:
    chat.app.set_keymap({"chat.send": "ctrl+g", "chat.new_line": "enter"})
    await chat.pilot.press("a", "enter", "b", "ctrl+g")
    await chat.until(lambda: chat.server.calls)
    assert chat.server.calls[0]["message"] == "a\nb"


async def test_up_and_down_go_through_what_was_sent(chat: Chat) -> None:
    await chat.ask("first")
    await chat.ask("second")
    chat.prompt.insert("draft")
    await chat.pilot.press("up")
    assert chat.prompt.text == "second"
    await chat.pilot.press("up", "up")
    assert chat.prompt.text == "first"
    await chat.pilot.press("down", "down")
    assert chat.prompt.text == "draft"


def told(chat: Chat) -> list[str]:
    return [call["message"] for call in chat.server.calls]


@pytest.mark.slow
async def test_messages_written_during_an_answer_are_sent_one_by_one_after_it(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    await chat.type("and now")
    await chat.type("count")
    assert chat.prompt.text == ""
    await chat.until(lambda: " 1  and now" in chat.app.screen_text())
    await chat.until(lambda: "2 queued: up changes" in chat.app.screen_text())
    assert told(chat) == ["hold"]
    chat.server.release()
    await chat.until(lambda: chat.texts()[-1] == "message 1 of this conversation")
    assert chat.texts()[2:5] == ["and now", "you said: and now", "count"]
    await chat.until(lambda: "queued" not in chat.app.screen_text())


@pytest.mark.slow
async def test_queued_messages_are_changed_and_removed_by_keys(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    for text in ("one", "two", "three"):
        await chat.type(text)
    await chat.pilot.press("up", "up", "x")  # "two"
    await chat.until(lambda: "2 queued" in chat.app.screen_text())
    await chat.pilot.press("up", "enter")
    assert chat.prompt.has_focus
    assert chat.prompt.text == "one"
    await chat.until(lambda: "changing a queued message" in chat.app.screen_text())
    chat.server.release()  # what is being changed is not sent meanwhile
    await chat.until(lambda: chat.texts()[-1] == "released")
    assert told(chat) == ["hold"]
    await chat.pilot.press("!", "enter")
    await chat.until(lambda: chat.texts()[-1] == "you said: three")
    assert told(chat) == ["hold", "one!", "three"]


@pytest.mark.slow
async def test_what_is_queued_waits_for_the_user_after_a_cancelled_run(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    await chat.type("later")
    chat.prompt.insert("a draft")
    await chat.until(lambda: "1 queued" in chat.app.screen_text())
    await chat.pilot.click(".chat-queue", offset=(5, 0))
    assert chat.prompt.text == "later"
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.prompt.text == "a draft")
    await chat.pilot.press("ctrl+k")
    await chat.until(lambda: "held: enter sends it" in chat.app.screen_text())
    await chat.pilot.press("enter")  # another message goes first
    await chat.until(lambda: chat.texts()[-1] == "you said: later")
    assert told(chat) == ["hold", "a draft", "later"]


async def test_what_is_written_while_the_agent_starts_is_sent_when_it_is_ready(chat: Chat) -> None:
    chat.app.feed(chat.snapshot(state=AgentState.CONNECTING))
    await chat.until(lambda: "What you write is sent when it is ready." in chat.app.screen_text())
    await chat.type("hello")
    await chat.until(lambda: "1 queued" in chat.app.screen_text())
    chat.app.feed(chat.snapshot())
    await chat.until(lambda: chat.texts()[-1:] == ["you said: hello"])


@pytest.mark.slow
async def test_a_queue_has_an_end(chat: Chat) -> None:
    await chat.type("hold")
    for number in range(MAX_QUEUED + 1):
        await chat.type(f"message {number}")
    assert len(chat.conversation.queue.messages) == MAX_QUEUED
    assert chat.prompt.text == f"message {MAX_QUEUED}"
    assert "20 messages are queued" in chat.notices()


@pytest.mark.slow
async def test_each_tab_is_a_conversation_of_its_own(chat: Chat) -> None:
    # PR-19
    await chat.ask("count")
    first = chat.view
    await chat.pilot.press("ctrl+t")
    await chat.until(lambda: isinstance(chat.app.screen, ChooserScreen))
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.view is not first and chat.prompt.has_focus)
    await chat.ask("count")
    assert chat.texts()[-1] == "message 1 of this conversation"
    assert "echo 1" in chat.app.screen_text()
    assert "echo 2" in chat.app.screen_text()
    await chat.pilot.press("ctrl+pageup")
    await chat.until(lambda: chat.view is first)
    await chat.ask("count")
    assert chat.texts()[-1] == "message 2 of this conversation"


async def test_the_chooser_filters_and_shows_who_can_answer(chat: Chat) -> None:
    chat.app.feed(chat.snapshot(), agent("other", 1), agent("slow", 2, state=AgentState.CONNECTING))
    await chat.pilot.press("ctrl+t")
    await chat.until(lambda: "slow" in chat.app.screen_text())
    assert "connecting" in chat.app.screen_text()
    await chat.pilot.press("o", "t", "h")
    await chat.until(lambda: "slow" not in chat.app.screen_text())
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.conversation.agent == "other")


async def test_opening_an_agent_goes_to_its_conversation_or_begins_one(chat: Chat) -> None:
    first = chat.view
    chat.pane.open_agent("other")
    await chat.until(lambda: chat.conversation.agent == "other" and chat.prompt.has_focus)
    chat.pane.open_agent("echo")
    await chat.until(lambda: chat.view is first)
    assert len(chat.pane._views) == 2


async def test_closing_a_tab_cancels_its_run_and_the_last_one_leaves_the_list(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    await chat.pilot.press("alt+w")
    await chat.until(lambda: chat.server.cancelled == 1)
    await chat.until(lambda: not chat.pane._views and "type a part of the name" in chat.app.screen_text())
    await chat.pilot.press("down", "enter")
    await chat.until(lambda: chat.conversation.agent == "other")


async def test_while_nothing_is_ready_the_agents_are_listed_with_what_they_do(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        await until(lambda: "no agents yet" in app.screen_text(), pilot)
        app.feed(
            agent("front", 1, state=AgentState.WAITING, depends_on=("back",)),
            agent("back", server.port, url=server.url),
        )
        await until(lambda: "waiting" in app.screen_text(), pilot)
        assert pane._current is None
        pane.focus_pane()
        await pilot.press("down", "enter")  # the first one that is ready can be talked to
        await until(lambda: pane._current is not None, pilot)
        assert pane._current is not None
        assert pane._current.conversation.agent == "back"


async def test_a_question_typed_before_anybody_is_ready_becomes_the_front_agents_text(
    server: EchoAgent,
) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        await until(lambda: "no agents yet" in app.screen_text(), pilot)
        pane.focus_pane()
        await pilot.press(*"ba")
        back = agent("back", server.port, url=server.url)
        app.feed(agent("front", server.port, state=AgentState.WAITING, depends_on=("back",)), back)
        await until(lambda: "● back" in app.screen_text(), pilot)
        await pilot.press(*"d?")
        await until(lambda: "front gets it as text once it is ready" in app.screen_text(), pilot)
        app.feed(agent("front", server.port, url=server.url, depends_on=("back",)), back)
        await until(lambda: pane._current is not None and pane._current.draft == "bad?", pilot)
        await pilot.press("!")
        await until(lambda: pane._current is not None and pane._current.draft == "bad?!", pilot)
        assert pane._current is not None
        assert pane._current.conversation.agent == "front"
        assert pane._current.conversation.untouched
        await pilot.press("alt+w")
        await until(lambda: "type a part of the name" in app.screen_text(), pilot)


async def test_a_question_entered_before_anybody_is_ready_is_sent_then(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        front = agent("front", server.port, url=server.url, state=AgentState.WAITING)
        app.feed(front)
        pane.focus_pane()
        await pilot.press(*"well?", "enter")
        await until(lambda: "1 queued" in app.screen_text(), pilot)
        app.feed(agent("front", server.port, url=server.url))
        await until(lambda: "you said: well?" in app.screen_text(), pilot)


@pytest.mark.slow
async def test_a_question_entered_before_there_are_agents_is_sent_to_the_front_agent(
    server: EchoAgent,
) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        await until(lambda: "no agents yet" in app.screen_text(), pilot)
        pane.focus_pane()
        await pilot.press(*"well?", "enter")
        await until(lambda: "What you wrote is sent" in app.screen_text(), pilot)
        app.feed(agent("front", server.port, url=server.url, state=AgentState.WAITING))
        await until(lambda: "1 queued" in app.screen_text(), pilot)
        app.feed(agent("front", server.port, url=server.url))
        await until(lambda: "you said: well?" in app.screen_text(), pilot)


@pytest.mark.slow
async def test_a_question_entered_before_there_are_agents_is_sent_to_one_that_is_ready_at_once(
    server: EchoAgent,
) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        pane.focus_pane()
        await pilot.press(*"well?", "enter")
        app.feed(agent("front", server.port, url=server.url))
        app.feed(agent("front", server.port, url=server.url, runs_total=1))
        await until(lambda: "you said: well?" in app.screen_text(), pilot)
        assert len(pane._views) == 1


@pytest.mark.slow
async def test_a_question_that_is_changed_after_it_was_entered_waits_for_another_enter(
    server: EchoAgent,
) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        pane.focus_pane()
        await pilot.press(*"well", "enter", "?")
        await until(lambda: "They appear here" in app.screen_text(), pilot)
        app.feed(agent("front", server.port, url=server.url))
        await until(lambda: pane._current is not None and pane._current.draft == "well?", pilot)


@pytest.mark.slow
async def test_a_name_entered_before_there_are_agents_opens_its_agent(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        pane.focus_pane()
        await pilot.press(*"bac", "enter")
        front = agent("front", server.port, url=server.url, depends_on=("back",))
        app.feed(front, agent("back", server.port, url=server.url))
        await until(lambda: pane._current is not None, pilot)
        assert pane._current is not None
        assert (pane._current.conversation.agent, pane._current.draft) == ("back", "")


async def test_a_part_of_a_name_typed_early_stays_a_search(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        pane.focus_pane()
        await pilot.press(*"bac")
        front = agent("front", server.port, url=server.url, depends_on=("back",))
        app.feed(front, agent("back", server.port, url=server.url))
        await until(lambda: "● back" in app.screen_text(), pilot)
        assert pane._current is None
        await pilot.press("enter")
        await until(lambda: pane._current is not None, pilot)
        assert pane._current is not None
        assert (pane._current.conversation.agent, pane._current.draft) == ("back", "")


async def test_where_the_front_agent_cannot_come_nothing_is_promised(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        pane.focus_pane()
        await pilot.press(*"why")
        app.feed(agent("front", 1, state=AgentState.ERROR, error="no module"))
        await until(lambda: "No agent has that in its name." in app.screen_text(), pilot)
        assert "gets it" not in app.screen_text()


@pytest.mark.slow
async def test_an_image_is_attached_by_its_path(chat: Chat, tmp_path: Path) -> None:
    # PR-17
    (tmp_path / "plan.png").write_bytes(PNG)
    chat.app.feed(chat.snapshot(vision=True))
    await chat.pilot.press("ctrl+o")
    line = chat.view.query_one(PathLine)
    assert line.has_focus
    await chat.pilot.press("p", "l")
    await chat.until(lambda: line._suggestion == "plan.png")
    await chat.pilot.press("tab", "enter")
    await chat.until(lambda: "plan.png 1 KB ×" in chat.app.screen_text())
    await chat.until(lambda: chat.prompt.has_focus)  # a widget knows it once it has worked off its queue
    await chat.ask("picture")
    assert chat.texts()[-1] == f"image/png {len(PNG)}"
    sent = chat.server.calls[0]["images"]
    assert base64.b64decode(sent[0]["data"]) == PNG
    await chat.until(lambda: "plan.png 1 KB: broken" in chat.app.screen_text())
    assert not chat.view.query(Chip)


async def test_dropping_an_image_file_attaches_it_and_other_text_stays_text(
    chat: Chat, tmp_path: Path
) -> None:
    path = tmp_path / "a plan.png"
    path.write_bytes(PNG)
    chat.app.feed(chat.snapshot(vision=True))
    chat.app.post_message(Paste(f"'{path}'"))
    await chat.until(lambda: len(chat.view.tray.attachments) == 1)
    chat.app.post_message(Paste(f"look at {path}"))
    await chat.until(lambda: chat.prompt.text == f"look at {path}")
    assert len(chat.view.tray.attachments) == 1
    chat.prompt.clear()
    await chat.pilot.press("backspace")
    await chat.until(lambda: not chat.view.tray.attachments and not chat.view.query(Chip))


@pytest.mark.slow
async def test_a_chip_is_removed_by_its_key_and_by_a_click(chat: Chat, tmp_path: Path) -> None:
    for name in ("one.png", "two.png"):
        (tmp_path / name).write_bytes(PNG)
    chat.app.post_message(Paste(f"{tmp_path}/one.png {tmp_path}/two.png"))
    await chat.until(lambda: len(chat.view.query(Chip)) == 2)
    chat.view.query(Chip).first().focus()
    await chat.pilot.press("delete")
    await chat.until(lambda: [one.name for one in chat.view.tray.attachments] == ["two.png"])
    await chat.until(lambda: len(chat.view.query(Chip)) == 1)
    await chat.pilot.pause()  # it moves to the place of the other one
    await chat.pilot.click(chat.view.query_one(Chip))
    await chat.until(lambda: not chat.view.tray.attachments)


async def test_an_agent_without_vision_refuses_images_before_anything_is_sent(
    chat: Chat, tmp_path: Path
) -> None:
    # PR-17
    (tmp_path / "plan.png").write_bytes(PNG)
    chat.app.post_message(Paste(str(tmp_path / "plan.png")))
    await chat.until(lambda: "echo has no vision" in chat.app.screen_text())
    await chat.type("look")
    assert chat.server.calls == []
    assert chat.prompt.text == "look"
    assert "no vision" in chat.notices()


async def test_a_file_that_is_no_image_is_refused_in_words(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "notes.png").write_text("text")
    await chat.pilot.press("ctrl+o")
    chat.view.query_one(PathLine).value = "notes.png"
    await chat.pilot.press("enter")
    await chat.until(lambda: "is not a PNG, JPEG, GIF or WebP" in chat.notices())
    assert chat.view.query_one(PathLine).display
    await chat.pilot.press("escape")
    assert chat.prompt.has_focus


async def test_y_copies_the_last_answer_or_the_message_pointed_at(chat: Chat) -> None:
    await chat.ask("hello")
    await chat.pilot.press("escape", "y")
    await chat.until(lambda: chat.app.clipboard == "you said: hello")
    await chat.pilot.press("k", "k", "y")
    await chat.until(lambda: chat.app.clipboard == "hello")
    await chat.pilot.press("escape", "enter")
    assert chat.prompt.has_focus


@pytest.mark.slow
async def test_what_is_read_does_not_move_and_what_came_is_counted(chat: Chat) -> None:
    for number in range(12):
        await chat.ask(f"question {number}")
    transcript = chat.view.transcript
    await chat.until(lambda: transcript.at_end and transcript.max_scroll_y > 10)
    await chat.type("hold")
    await chat.until(lambda: "so far so good" in chat.app.screen_text())
    await chat.pilot.press("escape")  # asks to cancel; nothing is cancelled by one
    transcript.focus()
    transcript.scroll_home(animate=False)
    await chat.until(lambda: transcript.scroll_offset.y == 0)

    def read() -> list[str]:  # without the scroll bar
        return [line[:97].rstrip() for line in chat.app.screen_text().splitlines()[1:15]]

    before = read()
    chat.server.release()
    await chat.until(lambda: "1 new message below" in chat.app.screen_text())
    assert read() == before
    await chat.pilot.press("G")
    await chat.until(lambda: transcript.at_end and "released" in chat.app.screen_text())
    assert "below" not in chat.app.screen_text()


@pytest.mark.slow
async def test_old_messages_go_but_not_while_somebody_reads_them(chat: Chat) -> None:
    def say(count: int) -> None:
        for number in range(count):
            run = chat.conversation.begin(f"question {number}", (), 1.0)
            chat.conversation.answer(run, AgentReply(text="yes", seconds=0.1), 2.0)

    say(KEEP // 2)
    await chat.until(lambda: len(chat.shown()) == KEEP and chat.view.transcript.at_end, SLOW)
    chat.view.transcript.focus()
    await chat.pilot.press("home")
    await chat.until(lambda: "question 0" in chat.app.screen_text(), SLOW)
    say(2)
    await chat.until(lambda: "2 new messages below" in chat.app.screen_text(), SLOW)
    assert "question 0" in chat.app.screen_text()
    await chat.pilot.press("G")
    await chat.until(lambda: chat.view.transcript.at_end, SLOW)
    say(1)
    # The newest is there, and not only as many as there may be: that holds before it came, too.
    newest = chat.conversation.entries[-1]
    await chat.until(lambda: chat.shown()[-1].entry is newest and len(chat.shown()) == KEEP, SLOW)
    await chat.until(lambda: chat.view.transcript.at_end, SLOW)
    above = chat.view.transcript.query_one(".chat-pruned", Static)
    await chat.until(lambda: "6 earlier messages not shown any more" in str(above.content), SLOW)
    # They come back where the transcript begins, and the line above them goes.
    await chat.pilot.press("home")
    await chat.until(lambda: len(chat.shown()) == KEEP + 6 and not above.display, SLOW)


@pytest.mark.slow
async def test_a_hidden_pane_goes_on_talking_and_paints_nothing(chat: Chat) -> None:
    await chat.type("hold")
    await chat.until(lambda: "so far so good" in chat.app.screen_text())
    chat.pane.hide_pane()
    shown = len(chat.shown())
    chat.server.release()
    await chat.until(lambda: chat.texts()[-1] == "released")
    assert len(chat.shown()) == shown
    assert "echo has answered" in chat.notices()
    chat.pane.show_pane()
    await chat.until(lambda: "released" in chat.app.screen_text())


async def test_leaving_the_application_ends_the_run(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test() as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot())
        await chat.until(lambda: chat.prompt.has_focus)
        await chat.type("hold")
        await chat.until(server.held.is_set)
    await until(lambda: server.cancelled == 1)
    left = [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("mcp ")]
    assert left == []


async def test_a_list_of_agents_that_changes_keeps_what_is_highlighted(chat: Chat) -> None:
    await chat.pilot.press("ctrl+t")
    await chat.until(lambda: isinstance(chat.app.screen, ChooserScreen))
    await chat.pilot.press("down")
    chat.app.feed(agent("another", 3), chat.snapshot(), agent("other", 4))
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.conversation.agent == "other")
    assert not chat.app.query(AgentChooser).filter("#none")
