"""The screen of durable threads by keyboard: found, read, gone on with, renamed, deleted, copied, written."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.echo_agent import EchoAgent
from support.fake_fleet import NOON, FakeFleet, agent
from support.notices import notices_of
from support.shell import DrivenWorkbench
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input

from pallas.model import (
    Compacted,
    Fault,
    FaultType,
    FleetSnapshot,
    FleetState,
    MessageRecord,
    RunStarted,
    ThreadRecord,
    ToolCall,
    ToolEvent,
)
from pallas_tui.app import Workbench
from pallas_tui.launch import late_panes
from pallas_tui.screens.help_screen import HelpScreen
from pallas_tui.screens.record_screens import ThreadsScreen
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.agent_chooser import ChooserScreen
from pallas_tui.widgets.chat.chat_dialogs import ConfirmScreen
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.prompt_area import PromptArea
from pallas_tui.widgets.pane import Pane
from pallas_tui.widgets.threads import ThreadsPane

WIDE = (120, 40)
SMALL = (80, 24)
HOSTILE = "\x1b]52;c;cm0gLXJmIC8=\x07[@click=app.quit]quit[/] \u202egnp.exe"


def record(number: int, title: str = "", **more: Any) -> ThreadRecord:
    given: dict[str, Any] = {"agent": "echo", "owner": "anonymous", "origin": "mcp", **more}
    at = NOON - 100 * number
    return ThreadRecord(f"conv-{number}", title=title, created_at=at, last_turn_at=at, **given)


def rows(thread: str, *said: str, start: int = 0) -> list[MessageRecord]:
    """Questions and answers in turn."""
    return [
        MessageRecord(
            f"{thread}-{start + index}",
            thread,
            start + index,
            "assistant" if index % 2 else "user",
            text,
            "complete",
            run=f"run{(start + index) // 2}",
            created_at=NOON - 50,
        )
        for index, text in enumerate(said)
    ]


class Desk(DrivenWorkbench):
    """A workbench with the real chat over a fleet of one agent that really answers."""

    def __init__(self, app: Workbench, pilot: Pilot[Any], fleet: FakeFleet, server: EchoAgent) -> None:
        super().__init__(app, pilot)
        self.fleet, self.server = fleet, server

    async def open_threads(self) -> ThreadsPane:
        await self.press("alt+t")  # works while one writes, too
        await self.until(
            lambda: isinstance(self.app.screen, ThreadsScreen) and self.app.screen.query(ThreadsPane)
        )
        return self.app.screen.query_one(ThreadsPane)

    @property
    def view(self) -> ConversationView:
        view = self.app.main.query_one(ChatPane)._current
        assert view is not None
        return view

    @property
    def prompt(self) -> PromptArea:
        return self.view.query_one(PromptArea)

    def entries(self) -> list[tuple[str, str]]:
        return [(entry.role, entry.text) for entry in self.view.conversation.entries]


@asynccontextmanager
async def desk(
    tmp_path: Path,
    size: tuple[int, int] = WIDE,
    *,
    fill: Callable[[FakeFleet], object] = lambda fleet: None,
    home: Path | None = None,
    settings: Settings | None = None,
    key: str = "",
) -> AsyncIterator[Desk]:
    async with EchoAgent() as server:
        server.key = key
        one = agent("echo", server.port, url=server.url)
        fleet = FakeFleet(FleetSnapshot("desk", FleetState.RUNNING, NOON, "http://127.0.0.1:24200", (one,)))
        fill(fleet)
        log = tmp_path / "pallas.log"
        log.touch()
        app = Workbench(
            lambda: fleet,
            name="desk",
            late=late_panes(log),
            settings=settings or Settings("textual-dark", False),
            clock=lambda: NOON,
            home=home,
            strict=True,
        )
        async with app.run_test(size=size) as pilot:
            here = Desk(app, pilot, fleet, server)
            await until(lambda: len(app.main.query(Pane)) == 5 and app.main.query(PromptArea), pilot)
            await until(lambda: isinstance(app.focused, PromptArea), pilot)
            yield here


def said(here: Desk) -> str:
    """What the notifications say."""
    return "\n".join(each.message for each in notices_of(here.app))


def three(fleet: FakeFleet) -> None:
    fleet.kept.add(
        record(1, "Which customers were hit?"), *rows("conv-1", "Which customers were hit?", "Acme.")
    )
    fleet.kept.add(record(2, "Deploy on Friday", origin="rest"), *rows("conv-2", "Deploy?", "No."))
    fleet.kept.add(record(3, f"evil {HOSTILE}", owner="token:ci"), *rows("conv-3", HOSTILE, f"re {HOSTILE}"))


@pytest.mark.slow
@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["120x40", "80x24"])
async def test_threads_are_listed_and_one_is_gone_on_with(tmp_path: Path, size: tuple[int, int]) -> None:
    async with desk(tmp_path, size, fill=three) as here:
        await here.open_threads()
        text = await here.sees("Which customers were hit?", "Deploy on Friday", "rest", "Acme.", "3 threads")
        assert text.index("Which customers") < text.index("Deploy on") < text.index("evil")
        assert "\x1b" not in text
        assert "\u202e" not in text
        await here.press("down")
        # A low screen has room for little more than the last answer.
        await here.sees("No.", "conv-2", *(["Deploy?"] if size == WIDE else []))
        await here.press("home", "enter")
        await here.sees("Which customers were hit?", "Acme.")
        await here.until(lambda: here.prompt.has_focus)
        here.prompt.insert("count")
        await here.press("enter")
        await here.sees("message 1 of this conversation")
        assert here.server.calls[-1]["conversation_id"] == "conv-1"
        assert not here.server.calls[-1]["history"]
        # Once more from the list: the same tab.
        await here.open_threads()
        await here.press("enter")
        await here.until(lambda: here.prompt.has_focus)
        assert here.view.conversation.thread == "conv-1"
        assert len(here.app.main.query(ConversationView)) == 2  # the one it began with, and this


@pytest.mark.slow
async def test_a_thread_of_ten_thousand_is_read_from_its_end_and_more_on_the_way_up(tmp_path: Path) -> None:
    def long(fleet: FakeFleet) -> None:
        said = [f"{'answer' if n % 2 else 'question'} {n // 2}" for n in range(10_000)]
        fleet.kept.add(record(1, "long"), *rows("conv-1", *said))

    async with desk(tmp_path, fill=long) as here:
        await here.open_threads()
        await here.sees("10000")
        await here.press("enter")
        await here.sees("answer 4999")
        # Whether the list had read its last words before depends on how quickly it was left.
        read = [asked[1] for asked in here.fleet.kept.asked if asked[0] == "conv-1"]
        assert 40 in read
        assert sum(read) <= 200
        assert len(here.view.conversation.entries) >= 40
        await here.until(lambda: here.view.transcript.at_end)
        await here.press("escape")
        here.view.transcript.focus()
        await here.press("home")
        await here.until(lambda: len(here.view.conversation.entries) >= 100)
        await here.until(lambda: here.view.transcript.max_scroll_y > 200)
        # What was at the top is still there to be read, and the way on is told.
        await here.sees("question 4")
        before = len(here.view.conversation.entries)
        await here.press("g", "g")
        await here.until(lambda: len(here.view.conversation.entries) > before)
        assert len(here.fleet.kept.asked) < 12


@pytest.mark.slow
async def test_a_list_of_ten_thousand_is_read_as_far_as_somebody_goes(tmp_path: Path) -> None:
    def many(fleet: FakeFleet) -> None:
        for number in range(1, 10_001):
            fleet.kept.add(record(number, f"thread number {number}"))

    async with desk(tmp_path, fill=many) as here:
        pane = await here.open_threads()
        await here.sees("thread number 1 ", "so far")
        assert len(here.app.threads.listed) <= 300
        await here.press("end")
        await here.until(lambda: len(here.app.threads.listed) >= 200)
        await here.press("slash", *"number 4321")
        await here.sees("thread number 4321", "1 of ")
        assert len(here.app.threads.listed) >= 4_321
        assert pane.rows.line_count() == 1
        await here.press("escape")
        await here.until(lambda: pane.rows.line_count() > 4_000)


@pytest.mark.slow
async def test_calls_and_errors_stand_as_they_did_while_it_was_said(tmp_path: Path) -> None:
    def eventful(fleet: FakeFleet) -> None:
        call = ToolCall("c1", "docs__search", {"query": "invoices"})
        one = {"thread": "conv-1", "status": "complete", "run": "run1", "created_at": NOON}
        fleet.kept.add(
            record(1, "eventful"),
            MessageRecord("0", turn_index=0, role="system", content="It began.", summary=True, **one),
            MessageRecord("1", turn_index=1, role="user", content="search", **one),
            MessageRecord("2", turn_index=2, role="assistant", content="Looking.", tool_calls=(call,), **one),
            MessageRecord("3", turn_index=3, role="tool", content="3 invoices", tool_call_id="c1", **one),
            MessageRecord("4", turn_index=4, role="assistant", content="Found three.", **one),
            MessageRecord(
                "5", "conv-1", 5, "user", "again", "error", run="run2", reason="the fleet was killed"
            ),
            MessageRecord("6", "conv-1", 6, "user", "and now?", "pending", run="run3"),
        )

    async with desk(tmp_path, fill=eventful) as here:
        await here.open_threads()
        await here.sees("eventful")
        await here.press("enter")
        await here.sees("docs/search", "Found three.", "1 tool call", "the fleet was killed")
        await here.sees("still being answered")
        assert "the agent receives this summary" in here.entries()[0][1]
        assert [role for role, _ in here.entries()] == [
            "note",
            "user",
            "assistant",
            "user",
            "error",
            "user",
            "note",
        ]
        await here.press("escape", "t", "i")
        await here.until(lambda: isinstance(here.app.screen, TextScreen))
        await here.sees('"query": "invoices"', "3 invoices")


@pytest.mark.slow
async def test_a_thread_of_another_caller_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three, key="s3cret-of-ci") as here:
        await here.open_threads()
        await here.sees("evil")
        await here.press("end")
        await here.sees("token:ci")
        await here.press("enter")
        await here.sees("belongs to token:ci", "Alt+p", "re ")
        assert here.prompt.disabled
        # Whoever shows that caller's token goes on in the very same thread.
        from pallas_tui.chat.chat_principal import typed

        await here.view.host.ask_as(typed("s3cret-of-ci"))
        await here.until(lambda: not here.prompt.disabled)
        assert here.view.conversation.handle == "conv-3"
        here.prompt.insert("hello")
        here.view.focus_prompt()
        await here.press("enter")
        await here.sees("you said: hello")
        assert here.server.calls[-1]["conversation_id"] == "conv-3"


@pytest.mark.slow
async def test_a_thread_of_another_caller_is_branched_off(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.open_threads()
        await here.press("end", "enter")
        await here.sees("belongs to token:ci")
        here.view.transcript.focus()
        await here.press("a")
        await here.until(lambda: here.prompt.has_focus and not here.prompt.disabled)
        here.prompt.insert("mine now")
        await here.press("enter")
        await here.sees("you said: mine now")
        assert here.server.calls[-1]["conversation_id"] != "conv-3"
        assert len(here.server.calls[-1]["history"]) == 2


@pytest.mark.slow
async def test_a_thread_is_renamed_copied_and_deleted_after_a_question(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.open_threads()
        await here.sees("Deploy on Friday")
        await here.press("down", "e")
        line = here.app.screen.query_one("#thread-title", Input)
        await here.until(lambda: line.has_focus and line.value == "Deploy on Friday")
        line.value = "Never on Friday"
        await here.press("enter")
        await here.sees("Never on Friday")
        assert here.fleet.kept.records["conv-2"].title == "Never on Friday"
        await here.press("y")
        await here.until(lambda: here.app.clipboard == "conv-2")
        await here.press("x")
        await here.sees("Delete 2 messages with echo for good: Never on Friday?")
        await here.press("n")
        assert "conv-2" in here.fleet.kept.records
        await here.press("x", "y")
        await here.until(lambda: "conv-2" not in here.fleet.kept.records)
        await here.sees("2 threads", gone=("Never on Friday",))


@pytest.mark.slow
async def test_a_deleted_thread_leaves_its_tab_with_what_was_said(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.open_threads()
        await here.sees("Which customers")
        await here.press("enter")
        await here.sees("Acme.")
        await here.open_threads()
        await here.press("x", "y")
        await here.until(lambda: "conv-1" not in here.fleet.kept.records)
        await here.press("escape")
        await here.sees("This thread was deleted", "Acme.")
        here.view.focus_prompt()
        here.prompt.insert("and you?")
        await here.press("enter")
        await here.sees("you said: and you?")
        assert here.server.calls[-1]["conversation_id"] != "conv-1"
        assert [each["content"] for each in here.server.calls[-1]["history"]][-1] == "Acme."


@pytest.mark.slow
async def test_the_name_of_a_conversation_is_the_title_of_its_thread(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.open_threads()
        await here.sees("Deploy on Friday")
        await here.press("down", "enter")
        await here.sees("Deploy?", "No.")
        kept = here.fleet.kept.records

        async def rename(title: str) -> None:
            await here.press("alt+n")
            line = here.app.screen.query_one(Input)
            await here.until(lambda: line.has_focus)
            line.value = title
            await here.press("enter")

        await rename("Never  on Friday")
        await here.until(lambda: kept["conv-2"].title == "Never on Friday")
        await here.sees("Never on Friday", gone=("Deploy on Friday",))
        await here.open_threads()
        await here.sees("Never on Friday", gone=("Deploy on Friday",))
        await here.press("escape")
        await here.press("ctrl+p", *"never on")
        await here.sees("Thread: Never on Friday", "Conversation: Never on Friday")
        await here.press("escape")
        # Over REST, or in another workbench.
        kept["conv-2"] = replace(kept["conv-2"], title="Only on Friday")
        await here.sees("Only on Friday")
        here.fleet.kept.problem = Fault(FaultType.TRANSPORT, "the database does not answer")
        await rename("Lost")
        await here.until(lambda: "It is not renamed: the database does not answer" in said(here))
        here.fleet.kept.problem = None
        assert kept["conv-2"].title == here.view.conversation.name == "Only on Friday"
        # Without a name: that of the first message, and of the agent on the tab.
        await rename("")
        await here.until(lambda: kept["conv-2"].title == "Deploy?")
        await here.until(lambda: here.view.conversation.name == "")


@pytest.mark.slow
async def test_a_thread_that_is_not_written_gets_its_title_when_it_is(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        await here.press("alt+n")
        line = here.app.screen.query_one(Input)
        await here.until(lambda: line.has_focus)
        line.value = "Plans"
        await here.press("enter")
        await here.sees("Plans")
        await here.until(lambda: "gets that title once it is written" in said(here))
        here.prompt.insert("hello")
        await here.press("enter")
        await here.sees("you said: hello")
        assert here.view.conversation.name == "Plans"
        here.fleet.kept.add(record(7, "hello"), *rows("conv-7", "hello", "you said: hello"))
        here.fleet.kept.handles[here.view.conversation.handle] = "conv-7"
        await here.until(lambda: here.fleet.kept.records["conv-7"].title == "Plans")
        # A question that is asked again goes on in another thread, by the same name.
        await here.press("ctrl+r")
        await here.until(lambda: isinstance(here.app.screen, ConfirmScreen))
        await here.press("y")
        await here.until(lambda: len(here.server.calls) == 2)
        here.fleet.kept.add(record(8, "hello"), *rows("conv-8", "hello", "you said: hello"))
        here.fleet.kept.handles[here.view.conversation.handle] = "conv-8"
        await here.until(lambda: here.fleet.kept.records["conv-8"].title == "Plans")


@pytest.mark.slow
async def test_a_thread_is_written_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with desk(tmp_path, fill=three) as here:
        await here.open_threads()
        await here.sees("Which customers")
        await here.press("w")
        await here.sees("Write the thread to")
        here.app.screen.query_one(Input).value = "thread.md"
        await here.press("enter")
        await here.until(lambda: (tmp_path / "thread.md").is_file())
        assert "Acme." in (tmp_path / "thread.md").read_text()


@pytest.mark.slow
async def test_one_agents_threads_and_all_again(tmp_path: Path) -> None:
    def two(fleet: FakeFleet) -> None:
        three(fleet)
        fleet.kept.add(replace(record(4, "of another"), agent="other"))

    async with desk(tmp_path, fill=two) as here:
        await here.open_threads()
        await here.sees("of another", "4 threads")
        await here.press("end", "o")
        await here.sees("with other", "1 thread", gone=("Deploy on Friday",))
        await here.press("o")
        await here.sees("Deploy on Friday", "4 threads")


@pytest.mark.slow
async def test_what_is_said_meanwhile_comes_to_the_top(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        pane = await here.open_threads()
        await here.sees("Which customers")
        await here.press("down")
        here.fleet.kept.add(replace(record(9, "brand new"), last_turn_at=NOON))
        here.fleet.change("echo", runs_total=1)
        await here.sees("brand new")
        selected = pane.rows.selected
        assert selected is not None
        assert selected.id == "conv-2"  # the cursor stayed on what it was on


@pytest.mark.slow
async def test_an_empty_list_teaches_and_a_fleet_that_keeps_nothing_says_so(tmp_path: Path) -> None:
    def keepless(fleet: FakeFleet) -> None:
        fleet.kept.problem = Fault(FaultType.CONFIG, "this fleet keeps nothing: it has no database")

    async with desk(tmp_path, SMALL, fill=keepless) as here:
        await here.open_threads()
        await here.sees("this fleet keeps nothing", "r reads again")
        here.fleet.kept.problem = None
        await here.press("r")
        await here.sees("No threads yet", "conversation_id", "/api/v1/agents/AGENT/chat")
        await here.press("f1")
        await here.until(lambda: isinstance(here.app.screen, HelpScreen))
        await here.press("escape", "escape")
        await here.until(lambda: here.app.screen is here.app.main)


@pytest.mark.slow
async def test_what_was_said_is_searched_and_a_hit_is_opened(tmp_path: Path) -> None:
    def old(fleet: FakeFleet) -> None:
        three(fleet)
        for number in range(4, 160):
            fleet.kept.add(record(number, f"older {number}"))
        said = rows("conv-200", "hello", f"the {HOSTILE} needle")
        fleet.kept.add(record(200, "Far below"), *said)

    async with desk(tmp_path, fill=old) as here:
        await here.open_threads()
        await here.sees("Which customers", "so far")
        await here.press("ctrl+f", *"needle")
        await here.sees("Far below", "needle", gone=("Deploy on Friday",))
        await here.until(lambda: here.fleet.kept.searches[-1] == "needle")
        # It is gone on typing: the search that waits is cancelled, and none is asked for each letter.
        here.fleet.kept.gate.clear()
        await here.press(*" and")
        await here.until(lambda: here.fleet.kept.searches[-1] == "needle and")
        await here.sees("searching")
        await here.press(*" more")
        await here.until(lambda: here.fleet.kept.searches[-1] == "needle and more")
        here.fleet.kept.gate.set()
        await here.sees("Nothing matches")
        here.fleet.kept.problem = Fault(FaultType.TRANSPORT, "the database does not answer")
        await here.press("backspace")
        await here.sees("messages are not searched: the database does not answer")
        here.fleet.kept.problem = None
        await here.press("escape")
        await here.press("ctrl+f", *"re [")
        await here.sees("evil", gone=("Deploy on Friday",))
        await here.press("enter", "enter")
        await here.until(lambda: here.app.screen is here.app.main)
        await here.until(lambda: here.view.conversation.thread == "conv-3")


@pytest.mark.slow
async def test_find_in_a_conversation_goes_on_in_all_threads(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.press("ctrl+f", *"acme")
        await here.sees("no match")
        await here.press("ctrl+f")
        await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
        await here.sees("Which customers were hit?", "Acme.", gone=("Deploy on Friday",))
        await here.press("enter")
        await here.until(lambda: here.view.conversation.thread == "conv-1")


@pytest.mark.slow
async def test_a_hit_is_opened_at_what_was_said_however_far_up(tmp_path: Path) -> None:
    def long(fleet: FakeFleet) -> None:
        three(fleet)
        turns = [(f"question {number}", f"answer {number}") for number in range(120)]
        turns[4] = ("where is it", "the needle\nlies here")
        fleet.kept.add(record(200, "Long"), *rows("conv-200", *(text for turn in turns for text in turn)))

    async with desk(tmp_path, fill=long) as here:
        for way in ("a new tab", "the same tab"):
            await here.open_threads()
            await here.press("ctrl+f", *"needle")
            await here.sees("Long", "needle", gone=("Deploy on Friday",))
            await here.press("enter", "enter")
            await here.until(lambda: here.view.conversation.thread == "conv-200")
            await here.sees("the needle", "lies here", gone=("question 119",))
            selected = here.view.transcript.selected
            assert selected is not None and selected.entry.text == "the needle\nlies here", way
            here.view.transcript.action_scroll_end()
            await here.sees("answer 119")


@pytest.mark.slow
async def test_the_palette_finds_a_thread(tmp_path: Path) -> None:
    async with desk(tmp_path, fill=three) as here:
        await here.until(lambda: here.app.threads.listed)  # nobody has to look at the list before
        await here.press("ctrl+p", *"deploy on")
        await here.sees("thread", "Thread: Deploy on Friday")
        await here.press("enter")
        await here.sees("Deploy?", "No.")
        assert here.view.conversation.thread == "conv-2"


@pytest.mark.slow
async def test_the_tabs_of_the_last_start_come_back_and_are_read_when_seen(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    async with desk(tmp_path, fill=three, home=home) as here:
        for number in (1, 2):
            await here.app.run_action("threads")
            await here.until(lambda: isinstance(here.app.screen, ThreadsScreen))
            await here.sees("Deploy on Friday")
            await here.press(*(["down"] * (number - 1)), "enter")
            await here.until(lambda n=number: here.view.conversation.thread == f"conv-{n}")
    async with desk(tmp_path, fill=three, home=home) as here:
        await here.sees("Deploy?", "No.", "Which customers")  # the other one's title on its tab
        assert here.view.conversation.thread == "conv-2"
        asked = [each[0] for each in here.fleet.kept.asked]
        assert "conv-1" not in asked
        await here.press("ctrl+pageup")
        await here.sees("Acme.")
    off = Settings("textual-dark", False).having("reopen", False)
    async with desk(tmp_path, fill=three, home=home, settings=off) as here:
        await here.sees("A new conversation with echo")
        assert here.view.conversation.thread == ""


@pytest.mark.slow
async def test_a_tab_whose_thread_is_gone_says_so(tmp_path: Path) -> None:
    home = tmp_path / "workbench.yaml"
    async with desk(tmp_path, fill=three, home=home) as here:
        await here.open_threads()
        await here.sees("Which customers")
        await here.press("enter")
        await here.sees("Acme.")
    async with desk(tmp_path, home=home) as here:
        await here.sees("no such thread")


@pytest.mark.slow
async def test_a_summary_of_older_messages_is_told_while_it_is_made(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.prompt.insert("hold")
        await here.press("enter")
        await here.until(lambda: here.view.conversation.run is not None and here.server.held.is_set())
        run = here.view.conversation.run
        assert run is not None
        one = {"run_id": "r1", "agent": "echo"}
        here.fleet.say(
            RunStarted(trace_id=run.trace.trace_id, preview="hold", **one),
            Compacted(messages=40, before=90_000, after=12_000, window=100_000, **one),
        )
        await here.sees("40 older messages in a summary now: about 90.0k tokens were 12.0k")
        here.server.release()
        await here.sees("released")


@pytest.mark.slow
async def test_why_a_tool_failed_is_below_its_call_also_when_the_run_is_over(tmp_path: Path) -> None:
    async with desk(tmp_path) as here:
        here.prompt.insert("hold")
        await here.press("enter")
        await here.until(lambda: here.view.conversation.run is not None and here.server.held.is_set())
        run = here.view.conversation.run
        assert run is not None
        for line in ("dates/days: started", "dates/days: failed", "dates/days: started"):
            here.view.conversation.hear(run, line)
        one = {"run_id": "r1", "agent": "echo"}
        failed = {"server": "dates", "tool": "days", "phase": "failed", "call_id": "1", **one}
        here.fleet.say(
            RunStarted(trace_id=run.trace.trace_id, preview="hold", **one),
            ToolEvent(error="ValueError: no such day", **failed),
        )
        await here.sees("ValueError: no such day")
        here.server.release()
        await here.sees("released")
        here.fleet.say(ToolEvent(error="KeyError: 'month'", **failed))
        await here.sees("ValueError: no such day")


@pytest.mark.slow
async def test_a_conversation_is_begun_from_any_pane_and_escape_returns_there(tmp_path: Path) -> None:
    async with desk(tmp_path, (80, 24)) as here:
        first, main = here.view, here.app.main
        for keys in ("f2", "f4", "f5", "f6"):
            await here.press(keys, "ctrl+t")
            await here.until(lambda: isinstance(here.app.screen, ChooserScreen))
            before = main.current
            await here.press("escape")
            await here.until(lambda: here.app.screen is main)
            assert main.current == before != "chat"
        await here.press("ctrl+t")
        await here.until(lambda: isinstance(here.app.screen, ChooserScreen))
        await here.press("enter")
        await here.until(lambda: here.view is not first and here.prompt.has_focus)
        assert main.current == "chat"
        await here.press("escape")
        assert main.current == "credentials"
        # Who has written stays in the chat.
        await here.press("f3", "f2", "enter")
        await here.until(lambda: here.prompt.has_focus)
        await here.press("x", "escape", "escape")
        await here.until(lambda: here.prompt.has_focus)
        assert (main.current, here.prompt.text) == ("chat", "x")


@pytest.mark.slow
async def test_a_conversation_that_begins_is_among_the_saved_tabs_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pallas_tui.widgets.chat.thread_tabs._KEEP_AFTER", 3_600.0)
    async with desk(tmp_path, home=tmp_path / "workbench.yaml") as here:
        here.prompt.insert("hold")
        await here.press("enter")
        await here.until(lambda: here.view.conversation.run is not None and here.server.held.is_set())
        handle = here.view.conversation.handle
        await here.until(lambda: any(handle in each.read_text() for each in tmp_path.rglob("*.tabs.json")))
