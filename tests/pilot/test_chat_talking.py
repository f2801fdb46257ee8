"""Calls as a tree, branches, changes, commands, principals, side by side: over a real agent."""

import json
from pathlib import Path

import pytest
from support.chat import Chat, chat, server
from support.echo_agent import EchoAgent
from support.fake_fleet import FakeFleet, agent
from support.pane_app import PaneApp
from support.waiting import until
from textual.widgets import Input, OptionList

from pallas.model import (
    AgentDetail,
    Cost,
    Exchange,
    Health,
    HealthStatus,
    RunStarted,
    ServerDetail,
    StepStarted,
    TextDelta,
    ToolDetail,
)
from pallas.model.fingerprint import fingerprint
from pallas_tui.chat.saved_prompts import PromptBook
from pallas_tui.chat_client import AgentReply
from pallas_tui.json_file import JsonFile
from pallas_tui.mcp_faults import asks_for_credential
from pallas_tui.targets import ConversationTarget, Reveal, RunTarget
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.chat_dialogs import ConfirmScreen, PromptsScreen, SideScreen
from pallas_tui.widgets.chat.chat_pane import MAX_TABS
from pallas_tui.widgets.chat.conversation_deck import SharedPrompt
from pallas_tui.widgets.chat.tool_tree import ToolTree
from pallas_tui.widgets.dialogs.choice_dialog import ChoiceScreen
from pallas_tui.widgets.dialogs.line_dialog import LineScreen

assert chat
assert server

TOKEN = "tok-5f0c-very-private-000001"


def tree(chat: Chat) -> ToolTree:
    return list(chat.view.query(ToolTree))[-1]


def labels(chat: Chat) -> list[str]:
    return [row.label for row in tree(chat).rows]


async def command(chat: Chat, text: str) -> str:
    """Type a command; the note that it leaves."""
    before = len(chat.conversation.entries)
    chat.prompt.load_text(text)
    await chat.pilot.press("enter")
    await chat.until(lambda: len(chat.conversation.entries) > before)
    await chat.until(lambda: chat.prompt.text == "")
    assert chat.conversation.entries[-1].role == "note"
    return chat.texts()[-1]


# Calls


@pytest.mark.slow
async def test_calls_grow_while_it_works_and_fold_to_one_row_after_it(chat: Chat) -> None:
    # PI-25
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    run = chat.conversation.run
    assert run is not None
    for message in (
        "echo step 2 (tool)",
        "research/ask: started",
        "research step 1 (tool)",
        "docs/search: started",
    ):
        chat.conversation.hear(run, message)
    await chat.until(lambda: labels(chat) == ["research/ask", "docs/search"])
    chat.app.feed(later=2)
    await chat.until(lambda: [row.figures for row in tree(chat).rows] == ["2 s · 1 tool", "2 s"])
    chat.conversation.hear(run, "docs/search: completed")
    chat.conversation.hear(run, "research/ask: completed")
    chat.server.release()
    await chat.until(lambda: chat.conversation.run is None and len(tree(chat).rows) == 1)
    await chat.until(lambda: "▸ ● research/ask  2.0 s · 1 tool" in chat.app.screen_text())


@pytest.mark.slow
async def test_calls_are_folded_and_left_by_keys(chat: Chat) -> None:
    await chat.ask("delegate")
    await chat.pilot.press("escape", "t")
    await chat.until(lambda: tree(chat).has_focus and len(tree(chat).rows) == 3)
    assert labels(chat) == ["research/ask", "docs/search", "vault/lookup"]
    assert "failed" in tree(chat).rows[2].figures
    await chat.pilot.press("left")
    assert labels(chat) == ["research/ask"]
    await chat.pilot.press("right")
    assert len(labels(chat)) == 3
    await chat.pilot.press("escape")
    assert chat.view.transcript.has_focus
    await chat.pilot.press("enter")
    assert chat.prompt.has_focus


@pytest.mark.slow
async def test_text_written_before_calls_stands_above_them(chat: Chat) -> None:
    def order() -> list[str]:
        lines = (line.strip(" ▸▾▶●✖■│") for line in chat.app.screen_text().splitlines())
        wanted = ("I look.", "docs/", "One more.", "shop/", "Found.")
        return [line.split("  ")[0] for line in lines if line.startswith(wanted)]

    calls = ["docs/search", "docs/read", "shop/list"]
    run = chat.conversation.begin("go", (), 1.0)
    for message in (
        "echo » I look.",
        f"{calls[0]}: started",
        f"{calls[0]}: completed",
        f"{calls[1]}: failed",
    ):
        chat.conversation.hear(run, message)
    await chat.until(lambda: order() == ["I look.", *calls[:2]])
    for message in ("echo step 2 (llm)", "echo » One more.", f"{calls[2]}: started"):
        chat.conversation.hear(run, message)
    await chat.until(lambda: order() == ["I look.", *calls[:2], "One more.", calls[2]])
    reply = AgentReply(text="I look.\n\nOne more.\n\nFound.", seconds=1.0)
    chat.conversation.answer(run, reply, 2.0)
    folded = ["I look.", "docs/search, docs/read", "One more.", "shop/list", "Found."]
    await chat.until(lambda: order() == folded)
    await chat.pilot.press("escape", "t", "down", "down")
    await chat.until(lambda: order() == ["I look.", *calls[:2], "One more.", calls[2], "Found."])
    assert tree(chat).has_focus
    await chat.pilot.press("up", "left")
    await chat.until(lambda: order() == folded)


@pytest.mark.slow
async def test_reasoning_is_folded_above_its_answer(chat: Chat) -> None:
    def delta(text: str, actor: str = "") -> TextDelta:
        return TextDelta(run_id="r-1", agent="echo", text=text, reasoning=True, actor=actor)

    step = StepStarted(run_id="r-1", agent="echo", actor="echo", step=1, kind="llm")
    await chat.type("hold")
    await chat.until(chat.server.held.is_set)
    run = chat.conversation.run
    assert run is not None
    started = RunStarted(run_id="r-1", agent="echo", trace_id=run.trace.trace_id)
    other = TextDelta(run_id="r-2", agent="echo", text="of another run", reasoning=True)
    chat.app.feed(events=(started, step, delta("hm, let me"), delta("x", "research"), other))
    await chat.until(lambda: "▸ reasoning  3 words" in chat.app.screen_text())
    chat.app.feed(events=(delta(" think"), step, delta("[b]then[/b]")))
    await chat.until(lambda: "5 words" in chat.app.screen_text())
    chat.server.release()
    await chat.until(lambda: "released" in chat.app.screen_text())
    chat.app.feed(events=(delta(" that is it"),))  # events may come after the answer
    await chat.until(lambda: "8 words" in chat.app.screen_text())
    assert "let me think" not in chat.app.screen_text()
    await chat.pilot.press("escape", "o")
    await chat.until(lambda: "[b]then[/b] that is it" in chat.app.screen_text())
    lines = [line.strip(" │") for line in chat.app.screen_text().splitlines()]
    shown = lines[lines.index("▾ reasoning  8 words") :]
    assert shown[1:5] == ["hm, let me think", "", "[b]then[/b] that is it", "released"]
    await chat.pilot.press("o")
    await chat.until(lambda: "let me think" not in chat.app.screen_text())


@pytest.mark.slow
async def test_text_is_found_in_a_conversation(chat: Chat) -> None:
    def marked() -> list[str]:
        strips = chat.app.screen._compositor.render_strips()
        return [s.text for strip in strips for s in strip if s.style and s.style.reverse and s.text.isalpha()]

    await chat.ask("Apples and apples")
    await chat.ask("markdown")
    for _ in range(12):
        await chat.ask("pears")
    await chat.pilot.press("ctrl+f", *"apple")
    await chat.until(lambda: "4 of 4" in chat.app.screen_text())  # in the answer too
    assert marked() == ["apple"]
    assert "you said: Apples and apples" in chat.app.screen_text()
    await chat.pilot.press("enter", "enter", "enter")
    await chat.until(lambda: "1 of 4" in chat.app.screen_text() and marked() == ["Apple"])
    await chat.pilot.press("up")
    await chat.until(lambda: "4 of 4" in chat.app.screen_text())
    await chat.pilot.press("ctrl+f", *"acme")
    await chat.until(lambda: "2 of 2" in chat.app.screen_text() and marked() == ["Acme"])
    await chat.pilot.press("down")
    await chat.until(lambda: "1 of 2" in chat.app.screen_text() and marked() == ["Acme"])
    await chat.pilot.press("escape")
    assert marked() == []
    selected = chat.view.transcript.selected
    assert chat.view.transcript.has_focus
    assert selected is not None
    assert "Acme" in selected.entry.text
    await chat.pilot.press("ctrl+f", *"[red]")
    await chat.until(lambda: "no match" in chat.app.screen_text())
    await chat.pilot.press("escape")
    assert chat.prompt.has_focus


async def test_an_answer_tells_tokens_and_cost_where_a_price_is_known(chat: Chat) -> None:
    chat.app.settings = type("S", (), {"prices": {"generic.*": {"input": 3.0, "output": 15.0}}})()  # type: ignore[attr-defined]
    chat.app.feed(chat.snapshot(runs_total=1))
    await chat.ask("delegate")
    answer = chat.conversation.entries[-1]
    assert answer.cost == Cost(4_500_000)
    await chat.until(lambda: "3 steps · 3 tool calls · $0.0045 · 1.0k in 100 out" in chat.app.screen_text())


@pytest.mark.slow
async def test_the_result_of_a_call_is_copied_from_the_fleet_or_from_what_was_told(chat: Chat) -> None:
    fleet = FakeFleet()
    chat.app.fleet = fleet  # type: ignore[attr-defined]
    response = {
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": "Acme and Globex"}]},
    }
    fleet.wire["run-of-echo"] = (
        Exchange("run-of-echo", 1.0, "inbound", "workbench", "tools/call"),
        Exchange(
            "run-of-echo",
            1.0,
            "downstream",
            "research",
            "tools/call",
            request=json.dumps(
                {"method": "tools/call", "params": {"name": "ask", "arguments": {"q": "who"}}}
            ),
            response=json.dumps(response),
        ),
    )
    chat.app.feed(events=(RunStarted(run_id="run-of-echo", agent="echo"),))
    await chat.ask("delegate")
    await chat.pilot.press("escape", "t", "i")
    await chat.until(lambda: chat.app.stories)
    (story,) = chat.app.stories
    assert story.title == "research/ask"
    assert '"q": "who"' in story.text
    assert "Acme and Globex" in story.text
    await chat.pilot.press("y")
    await chat.until(lambda: chat.app.clipboard == "Acme and Globex")
    await chat.pilot.press("down", "y")
    await chat.until(lambda: chat.app.clipboard.startswith("docs/search"))


@pytest.mark.slow
async def test_a_key_on_an_answer_shows_its_run_in_the_feed(server: EchoAgent, tmp_path: Path) -> None:
    seen: list[Reveal] = []

    class Noting(PaneApp):
        def on_reveal(self, event: Reveal) -> None:
            seen.append(event)

    pane = ChatPane(base=tmp_path)
    app = Noting(pane)
    async with app.run_test(size=(100, 30)) as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot())
        await chat.until(lambda: chat.prompt.has_focus)
        await chat.ask("hello")
        await pilot.press("escape", "f")
        await chat.until(lambda: "reported no run" in chat.notices())
        trace = server.metas[-1]["traceparent"].split("-")[1]
        app.feed(events=(RunStarted(run_id="r7", agent="echo", trace_id=trace),))
        app.feed(events=(RunStarted(run_id="r8", agent="other", trace_id=trace),))
        await pilot.press("f", "F")
        await chat.until(
            lambda: [event.target for event in seen] == [RunTarget("r7"), RunTarget("r7", "credentials")]
        )


# Branch, change, again


@pytest.mark.slow
async def test_a_branch_knows_what_was_said_before_it_and_nothing_of_the_other(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    first = chat.view
    await chat.pilot.press("escape", "k", "k", "k", "a")
    await chat.until(lambda: chat.view is not first and chat.prompt.has_focus)
    assert chat.texts() == ["one", "you said: one"]
    await chat.until(lambda: len(chat.shown()) == 2)
    await chat.ask("recall")
    assert chat.texts()[-1] == "one | you said: one"
    assert chat.server.calls[-1]["history"]
    await chat.ask("recall again")
    assert chat.texts()[-1] == "one | you said: one | recall"
    assert not chat.server.calls[-1]["history"]
    handles = {call["conversation_id"] for call in chat.server.calls}
    assert len(handles) == 2
    chat.pane.reveal(ConversationTarget(str(first.id)))
    await chat.until(lambda: chat.view is first)
    await chat.ask("recall")
    assert chat.texts()[-1] == "one | two"


@pytest.mark.slow
async def test_a_message_is_changed_and_sent_anew(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("tow")
    await chat.ask("three")
    chat.prompt.insert("a draft")
    await chat.pilot.press("escape", "k", "k", "k", "k", "e")
    await chat.until(lambda: chat.prompt.text == "tow" and chat.prompt.has_focus)
    await chat.until(lambda: "enter sends it again" in chat.app.screen_text())
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.prompt.text == "a draft")
    assert len(chat.texts()) == 6
    await chat.pilot.press("e")
    await chat.until(lambda: chat.prompt.text == "tow")
    chat.prompt.load_text("recall two")
    await chat.pilot.press("enter")
    await chat.until(lambda: chat.texts() == ["one", "you said: one", "recall two", "one | you said: one"])
    await chat.until(lambda: [view.entry.text for view in chat.shown()] == chat.texts())


@pytest.mark.slow
async def test_an_answer_is_asked_for_again_only_after_a_question(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("recall")
    await chat.pilot.press("ctrl+r")
    await chat.until(lambda: isinstance(chat.app.screen, ConfirmScreen))
    await chat.pilot.press("escape")
    await chat.until(lambda: not isinstance(chat.app.screen, ConfirmScreen))
    assert len(chat.server.calls) == 2
    await chat.pilot.press("ctrl+r")
    await chat.until(lambda: isinstance(chat.app.screen, ConfirmScreen))
    await chat.pilot.press("y")
    await chat.until(lambda: len(chat.server.calls) == 3 and chat.conversation.run is None)
    assert chat.texts() == ["one", "you said: one", "recall", "one | you said: one"]


# Commands


@pytest.mark.slow
async def test_a_command_is_completed_hinted_and_done(chat: Chat) -> None:
    # AG-26
    def chosen() -> str:
        """The name in the menu that is chosen, what it is for, and what is in the prompt."""
        line = next((line for line in chat.app.screen_text().splitlines() if "▸ " in line), "")
        return f"{line.strip(' ▸')} | {chat.prompt.text}"

    chat.prompt.insert("/s")
    await chat.until(lambda: "Replaces the agent's instruction" in chat.app.screen_text())
    assert chosen() == " | /s"
    await chat.pilot.press("escape")
    await chat.until(lambda: "Replaces" not in chat.app.screen_text())
    await chat.pilot.press("enter")
    await chat.until(lambda: "tab completes, and takes the next" in chat.app.screen_text())
    await chat.pilot.press("tab")
    await chat.until(lambda: chosen().startswith("/set ") and chosen().endswith("| /set"))
    await chat.pilot.press("tab")
    await chat.until(lambda: chosen().startswith("/system ") and chosen().endswith("| /system"))
    await chat.pilot.press("shift+tab", "up")
    await chat.until(lambda: chosen().startswith("/save ") and chosen().endswith("| /save"))
    await chat.pilot.press("down")
    await chat.until(lambda: chosen().endswith("| /set"))
    await chat.pilot.press("space", "s", "tab")
    await chat.until(lambda: "Show text while it is written." in chat.app.screen_text())
    chat.prompt.load_text("/se")
    await chat.pilot.press("tab")
    assert chat.prompt.text == "/set "
    await chat.pilot.press("p", "r", "o", "tab", "h", "tab")
    assert chat.prompt.text == "/set protocol handshake "
    await chat.pilot.press("enter")
    await chat.until(
        lambda: chat.texts()[-1:] == ["From the next message on: handshake. The conversation continues."]
    )
    assert chat.server.calls == []
    await chat.ask("hello")
    assert "initialize" in chat.server.rpc
    await chat.until(lambda: "handshake 2025" in chat.pane.caption)
    await chat.pilot.press("up", "up")
    assert chat.prompt.text == "/set protocol handshake "


async def test_an_unknown_command_stays_to_be_mended_and_two_slashes_send_one(chat: Chat) -> None:
    # AG-26
    await chat.type("/hlep")
    await chat.until(lambda: "Did you mean /help?" in chat.notices())
    assert chat.prompt.text == "/hlep"
    assert chat.server.calls == []
    chat.prompt.load_text("//help")
    await chat.pilot.press("enter")
    await chat.until(lambda: [call["message"] for call in chat.server.calls] == ["/help"])


@pytest.mark.slow
async def test_help_thread_tools_and_system_are_told_in_the_transcript_and_to_nobody_else(chat: Chat) -> None:
    # AG-26
    fleet = FakeFleet()
    chat.app.fleet = fleet  # type: ignore[attr-defined]
    fleet.details["echo"] = AgentDetail(
        "echo", instruction="You say it again.", servers=(ServerDetail("docs", (ToolDetail("search"),)),)
    )
    assert "/export [md|json] [path]" in await command(chat, "/help")
    assert chat.conversation.handle in await command(chat, "/thread")
    assert await command(chat, "/system") == "You say it again."
    assert "docs\n  search" in await command(chat, "/tools")
    await chat.ask("recall")
    assert chat.texts()[-1] == "nothing"
    chat.app.fleet = None  # type: ignore[attr-defined]
    assert "send_message: Send a message." in await command(chat, "/tools")


@pytest.mark.slow
async def test_clear_begins_anew_in_the_same_tab(chat: Chat) -> None:
    # AG-26
    await chat.ask("one")
    await chat.type("/clear")
    await chat.until(lambda: chat.conversation.untouched and not chat.shown())
    await chat.until(lambda: "A new conversation with echo" in chat.app.screen_text())
    await chat.ask("recall")
    assert chat.texts() == ["recall", "nothing"]


@pytest.mark.slow
async def test_export_asks_for_a_file_or_takes_one(chat: Chat, tmp_path: Path) -> None:
    # AG-26
    await chat.ask("work")
    await chat.type("/export")
    await chat.until(lambda: isinstance(chat.app.screen, LineScreen))
    chat.app.screen.query_one(Input).value = "talk.md"
    await chat.pilot.press("enter")
    await chat.until(lambda: "Written to" in chat.texts()[-1])
    assert "did the work: work" in (tmp_path / "talk.md").read_text()
    assert "(JSON)" in await command(chat, "/export json talk")
    document = json.loads((tmp_path / "talk.json").read_text())
    assert [message["role"] for message in document["messages"]] == ["user", "assistant"]
    await chat.type("/export md talk.md")
    await chat.until(lambda: "nothing is overwritten" in chat.notices())


# As whom


@pytest.mark.slow
async def test_a_bearer_is_sent_and_seen_nowhere(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    chat.server.key = TOKEN
    await chat.ask("hello")
    assert "none was sent" in chat.texts()[-1]
    said = await command(chat, "/set bearer $DESK_TOKEN")
    assert fingerprint(TOKEN)[:8] in said
    await chat.ask("hello")
    assert chat.texts()[-1] == "you said: hello"
    assert chat.server.bearers[-1] == f"Bearer {TOKEN}"
    await chat.until(lambda: f"as $DESK_TOKEN {fingerprint(TOKEN)[:8]}" in chat.pane.caption)
    assert fingerprint(TOKEN)[:8] in await command(chat, "/thread")
    await command(chat, "/export json out.json")
    assert fingerprint(TOKEN) in (tmp_path / "out.json").read_text()
    everywhere = [
        chat.app.screen_text(),
        chat.notices(),
        chat.pane.caption,
        (tmp_path / "out.json").read_text(),
        caplog.text,
        repr(chat.view.talk.options),
        *chat.texts(),
        *chat.pane._desk.history._sent,
    ]
    assert not [text for text in everywhere if TOKEN in text]
    assert "/set bearer $DESK_TOKEN" not in chat.pane._desk.history._sent


@pytest.mark.slow
async def test_whom_to_ask_as_is_chosen_from_a_list_without_a_token(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    monkeypatch.setenv("EMPTY_TOKEN", "no token, words")
    monkeypatch.setenv("OF_ALICE", f"{TOKEN}-alice")
    callers = {"alice": "$OF_ALICE", "bob": "$OF_BOB"}
    chat.app.settings = type("S", (), {"callers": callers})()  # type: ignore[attr-defined]

    async def listed() -> list[str]:
        await chat.pilot.press("alt+p")
        await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen) and chat.app.focused is not None)
        options = chat.app.screen.query_one(OptionList)
        return await chat.until(lambda: [str(option.prompt) for option in options.options])

    lines = await listed()
    assert [line.split()[0] for line in lines[:3]] == ["nobody", "alice", "bob"]
    assert lines[1].endswith(f"$OF_ALICE fingerprint {fingerprint(f'{TOKEN}-alice')[:8]}")
    assert lines[2].endswith("$OF_BOB holds no token now")
    assert any(line.startswith("$DESK_TOKEN ") for line in lines)
    assert not any(line.startswith("$EMPTY_TOKEN") for line in lines)
    assert TOKEN not in chat.app.screen_text()
    await chat.pilot.press(*"ali", "enter")
    await chat.until(lambda: "you ask as alice" in chat.texts()[-1])
    await chat.ask("hello")
    assert chat.server.bearers[-1] == f"Bearer {TOKEN}-alice"
    await listed()
    assert chat.app.screen.query_one(OptionList).highlighted == 1
    await chat.pilot.press("up", "enter")
    await chat.until(lambda: "you ask as nobody" in chat.texts()[-1])
    assert TOKEN not in chat.app.screen_text()


@pytest.mark.slow
async def test_a_token_is_typed_masked_and_only_for_this_conversation(chat: Chat) -> None:
    await chat.type("/set bearer ask")
    await chat.until(lambda: isinstance(chat.app.screen, LineScreen))
    line = chat.app.screen.query_one(Input)
    await chat.pilot.press(*TOKEN)
    assert TOKEN not in chat.app.screen_text()
    await chat.pilot.press("enter")
    await chat.until(lambda: "you ask as typed" in chat.texts()[-1])
    assert line.value == ""
    await chat.ask("hello")
    assert chat.server.bearers[-1] == f"Bearer {TOKEN}"
    chat.pane.new_conversation("other", wanted=True)
    await chat.until(lambda: chat.conversation.agent == "other" and chat.prompt.has_focus)
    await chat.ask("hello")
    assert chat.server.bearers[-1] == ""


async def test_a_token_that_is_typed_into_the_prompt_is_refused_and_goes_at_once(chat: Chat) -> None:
    await chat.type(f"/set bearer {TOKEN}")
    await chat.until(lambda: "never typed here" in chat.notices())
    assert TOKEN not in chat.prompt.text + chat.notices() + chat.app.screen_text()
    assert not [text for text in chat.pane._desk.history._sent if TOKEN in text]


@pytest.mark.slow
async def test_another_caller_begins_the_conversation_anew_with_what_was_said(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    await chat.ask("one")
    handle = chat.conversation.handle
    assert "starts over" in await command(chat, "/set bearer $DESK_TOKEN")
    assert chat.conversation.handle != handle
    await chat.ask("recall")
    assert chat.texts()[-1] == "one | you said: one"


async def test_a_token_goes_in_clear_to_another_machine_only_after_a_yes(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    chat.app.feed(chat.snapshot(url="http://192.0.2.1:9/mcp"))
    await chat.type("/set bearer $DESK_TOKEN")
    await chat.until(lambda: isinstance(chat.app.screen, ConfirmScreen))
    assert "http://192.0.2.1:9" in chat.app.screen_text()
    await chat.pilot.press("escape")
    await chat.until(lambda: chat.texts()[-1:] == ["Nothing was changed."])
    assert chat.view.talk.options.principal.token == ""
    await chat.type("/set bearer $DESK_TOKEN")
    await chat.until(lambda: isinstance(chat.app.screen, ConfirmScreen))
    await chat.pilot.press("y")
    await chat.until(lambda: "you ask as $DESK_TOKEN" in chat.texts()[-1])
    # It was allowed for that place, and for no other one.
    chat.app.feed(chat.snapshot(url="http://192.0.2.2:9/mcp"))
    await chat.ask("hello")
    assert "192.0.2.2:9 unencrypted" in chat.texts()[-1]


@pytest.mark.slow
async def test_an_attached_agent_that_wants_a_credential_can_be_asked_with_one(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PI-17
    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    chat.server.key = TOKEN
    name = "echo@elsewhere:24201"
    reason = asks_for_credential(chat.server.url, 401).message
    closed = agent(
        name, 1, url=chat.server.url, health=Health(HealthStatus.ERROR, f"get_health failed: {reason}")
    )
    chat.app.feed(chat.snapshot(), closed)
    chat.pane.open_agent(name)
    await chat.until(
        lambda: chat.conversation.agent == name and "asks for a credential" in chat.view.readiness.text
    )
    assert chat.prompt.disabled
    await chat.pilot.press("alt+p")
    await chat.until(lambda: isinstance(chat.app.screen, ChoiceScreen))
    await chat.pilot.press(*"$DESK_TOKEN", "enter")
    await chat.until(lambda: not chat.prompt.disabled and "you ask as $DESK_TOKEN" in chat.texts()[-1])
    chat.pane.focus_pane()
    await chat.ask("hello")
    assert chat.texts()[-1] == "you said: hello"
    broken = agent(
        name, 1, url=chat.server.url, health=Health(HealthStatus.ERROR, "the provider refuses the key")
    )
    chat.app.feed(chat.snapshot(), broken)
    await chat.until(lambda: chat.prompt.disabled)


async def test_the_other_era_is_another_conversation(chat: Chat) -> None:
    await chat.ask("hello")
    first = chat.view
    await chat.pilot.press("alt+e")
    await chat.until(lambda: chat.view is not first and chat.prompt.has_focus)
    assert chat.view.talk.options.era == "legacy"
    await chat.ask("recall")
    assert chat.texts()[-1] == "nothing"
    assert "initialize" in chat.server.rpc


# Several at once


@pytest.mark.slow
async def test_one_message_goes_to_several_agents_side_by_side(chat: Chat) -> None:
    await chat.pilot.press("alt+s")
    await chat.until(lambda: isinstance(chat.app.screen, SideScreen))
    await chat.pilot.press("enter")
    await chat.until(lambda: "Two to four agents: 1 chosen" in chat.app.screen_text())
    await chat.until(lambda: "[x] ● echo" in chat.app.screen_text())  # also where there are no colours
    assert "[ ] ● other" in chat.app.screen_text()
    chat.app.feed(
        chat.snapshot(), agent("other", chat.server.port, url=chat.server.url, description="Knows it all now")
    )
    await chat.until(lambda: "Knows it all now" in chat.app.screen_text())
    await chat.pilot.press("down", "space", "enter")
    shared = chat.pane.query_one(SharedPrompt)
    await chat.until(lambda: shared.has_focus)
    both = chat.pane._beside
    assert [view.conversation.agent for view in both] == ["echo", "other"]
    assert all(view.display for view in both)
    assert not chat.prompt.display
    shared.insert("hello both")
    await chat.pilot.press("enter")
    await chat.until(lambda: all(len(view.conversation.entries) == 2 for view in both))
    assert {view.conversation.entries[-1].text for view in both} == {"you said: hello both"}
    assert both[0].conversation.handle != both[1].conversation.handle
    await chat.until(lambda: chat.app.screen_text().count("you said: hello both") == 2)
    assert shared.text == ""
    await chat.pilot.press("alt+s")
    await chat.until(lambda: chat.prompt.has_focus)
    assert not shared.display
    assert chat.prompt.display


@pytest.mark.slow
async def test_where_it_is_narrow_one_of_them_is_seen_and_keys_go_to_the_others(server: EchoAgent) -> None:
    pane = ChatPane()
    app = PaneApp(pane)
    async with app.run_test(size=(60, 20)) as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot(), agent("other", server.port, url=server.url))
        await chat.until(lambda: chat.prompt.has_focus)
        await chat.type("/set side echo other")
        await chat.until(lambda: pane.query_one(SharedPrompt).has_focus)
        assert [view.display for view in pane._beside] == [True, False]
        await pilot.press("ctrl+pagedown")
        await chat.until(lambda: [view.display for view in pane._beside] == [False, True])
        pane.query_one(SharedPrompt).insert("to both")
        await pilot.press("enter")
        await chat.until(lambda: all(len(view.conversation.entries) == 2 for view in pane._beside))
        await pilot.resize_terminal(120, 40)
        await chat.until(lambda: [view.display for view in pane._beside] == [True, True])
        await chat.pilot.press("alt+w")
        await chat.until(lambda: not pane._beside and chat.view.display)


# Prompts, tabs


@pytest.mark.slow
async def test_a_prompt_is_kept_taken_and_forgotten(server: EchoAgent, tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    pane = ChatPane(prompts=PromptBook(JsonFile(file)))
    app = PaneApp(pane)
    async with app.run_test(size=(80, 24)) as pilot:
        chat = Chat(app, pane, pilot, server)
        app.feed(chat.snapshot())
        await chat.until(lambda: chat.prompt.has_focus)

        async def to_prompts() -> None:
            await pilot.press("f7")
            await chat.until(lambda: isinstance(app.screen, PromptsScreen))

        chat.prompt.insert("Which customers were hit?")
        await to_prompts()
        await pilot.press(*"invoice", "enter")
        await chat.until(lambda: not isinstance(app.screen, PromptsScreen))
        assert [each.name for each in PromptBook(JsonFile(file)).prompts] == ["invoice"]
        chat.prompt.load_text("")
        await to_prompts()
        await pilot.press("enter")
        await chat.until(lambda: chat.prompt.text == "Which customers were hit?")
        await to_prompts()
        await pilot.press("delete")
        await chat.until(lambda: "delete again deletes invoice" in app.screen_text())
        await pilot.press("delete")
        await chat.until(lambda: app.screen.query_one(OptionList).option_count == 0)
        assert PromptBook(JsonFile(file)).prompts == ()


@pytest.mark.slow
async def test_a_tab_has_a_name_and_the_palette_finds_it(chat: Chat) -> None:
    await chat.ask("which customers")
    await chat.pilot.press("alt+n")
    await chat.until(lambda: isinstance(chat.app.screen, LineScreen))
    await chat.pilot.press(*"bug [red]", "enter")
    await chat.until(lambda: "bug [red]" in chat.app.screen_text())
    (entity,) = chat.pane.entities()
    assert (entity.title, entity.help) == ("Conversation: bug [red]", "which customers")
    chat.pane.open_agent("other")
    await chat.until(lambda: chat.conversation.agent == "other")
    assert chat.pane.reveal(entity.target)
    await chat.until(lambda: chat.conversation.agent == "echo")
    assert not chat.pane.reveal(ConversationTarget("conversation-99"))


async def test_there_is_an_end_to_tabs(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pallas_tui.widgets.chat.chat_pane.MAX_TABS", 2)
    chat.pane.new_conversation("echo")
    await chat.until(lambda: len(chat.pane._views) == 2)
    chat.pane.new_conversation("echo")
    await chat.until(lambda: "2 conversations are open" in chat.notices())
    assert len(chat.pane._views) == 2
    assert MAX_TABS == 100


async def test_a_closed_conversation_forgets_its_token(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    from pallas.model.redaction import redact_text

    monkeypatch.setenv("DESK_TOKEN", TOKEN)
    await command(chat, "/set bearer $DESK_TOKEN")
    view = chat.view
    assert TOKEN not in redact_text(f"x {TOKEN}")
    await chat.pilot.press("alt+w")
    await until(lambda: view.talk.options.principal.token == "", chat.pilot)
    assert TOKEN in redact_text(f"x {TOKEN}")
