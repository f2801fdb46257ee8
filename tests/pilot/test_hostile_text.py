"""Text that wants to be more than text, through every place of the workbench.

``PLACES`` is the table: a new pane or screen is one line in it. The fleet of the test says hostile things in
every field of every value of the model, so a new field is hostile by itself.
"""

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import textual.drivers.headless_driver as headless
from mcp_types import CallToolResult, TextContent
from support import echo_agent
from support.echo_agent import EchoAgent
from support.fake_fleet import NOON, FakeFleet, agent
from support.hostile import HOSTILE, LONG, MARK, Listening, hostile_fleet, speak, stray, unruly
from support.pane_app import PaneApp
from support.pictures import picture
from support.shell import screen_text
from support.waiting import until
from textual.events import Paste
from textual.pilot import Pilot

from pallas.safe_text import sanitize, without_controls
from pallas_tui.app import Workbench
from pallas_tui.clipboard import copy
from pallas_tui.launch import late_panes
from pallas_tui.settings import Settings
from pallas_tui.shell.output_guard import OUTPUT_GUARD
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.prompt_area import PromptArea


@dataclass(frozen=True, slots=True)
class Place:
    """Where text is shown: the keys that lead to it, its screen, and whether the fleet's words are seen."""

    name: str
    keys: Sequence[str]
    screen: str = "MainScreen"
    seen: bool = True


# Those of one line are visited in one run of the workbench; each is left by escape.
PLACES = {
    "agents": (
        Place("agents", ["f2"]),
        Place("agent in full", ["f2", "i"], "TextScreen"),
        Place("agent details", ["f2", "d"], "AgentScreen"),
        Place("agent's tools", ["f2", "t"], "AgentScreen"),
        Place("tool form", ["f2", "t", "enter", "down", "enter"], "ToolScreen"),
        Place("tool form, a choice", ["f2", "t", "enter", "down", "enter", "down", "enter"], "ChoiceScreen"),
        Place("agents, filtered", ["f2", "slash", *MARK]),
    ),
    "chat and feed": (
        Place("chat", ["f3"]),
        Place("chat, choosing", ["f3", "ctrl+t"], "ChooserScreen"),
        Place("feed", ["f4"]),
        Place("feed, unfolded", ["f4", "home", "right"]),
        Place("run in full", ["f4", "home", "i"], "TextScreen"),
        Place("run", ["f4", "home", "enter"], "RunScreen"),
        Place("run, its last line", ["f4", "home", "enter", "end", "enter"], "ExchangeScreen"),
    ),
    "logs and credentials": (
        Place("logs", ["f5", "a"]),  # those of no project too, from here on
        Place("log record", ["f5", "end", "enter"], "RecordScreen"),
        Place("credentials", ["f6"]),
        Place("credentials, in full", ["f6", "home", "i"], "TextScreen"),
        Place("credentials, opened", ["f6", "home", "enter"], "TextScreen"),
    ),
    "messages": (
        Place("messages", ["f2", "M"], "MessagesScreen"),
        Place("messages, the refused one", ["f2", "M", "end", "o"], "MessagesScreen"),
        Place("message", ["f2", "M", "home", "enter"], "EnvelopeScreen"),
        Place("message, not sent again", ["f2", "M", "home", "p"], "MessagesScreen"),
        Place("message, written", ["f2", "w"], "SendScreen"),
        Place("message, written as XML", ["f2", "w", "3"], "SendScreen"),
    ),
    "others": (
        Place("todos", ["f2", "D"], "TodosScreen"),
        Place("todo in full", ["f2", "D", "i"], "TextScreen"),
        Place("verdicts", ["f2", "V"], "VerdictsScreen"),
        Place("verdict on a run", ["f2", "V", "enter"], "JudgedRunScreen"),
        Place("instances", ["f10"], "InstancesScreen", seen=False),
        Place("palette", ["ctrl+p", *MARK], "CommandPalette"),
        Place("help", ["f2", "f1"], "HelpScreen", seen=False),
        Place("jump", ["f2", "f12"], "JumpScreen", seen=False),
    ),
}

# What the model promises, and what it would be if somebody forgot.
TEXTS = {"sanitised": sanitize(HOSTILE), "raw": HOSTILE}


def log_of(folder: Path, text: str) -> Path:
    """A log with hostile records, a line that is not JSON, raw bytes and a very long line."""
    record = {
        "time": "2026-01-01T00:00:00.000Z",
        "level": "ERROR",
        "logger": f"l{text}",
        "message": text,
        "agent": text,
        "exception": f"Traceback\n  {text}\nError: {text}",
        text[:20]: {text[:20]: [text]},
    }
    lines = [
        json.dumps(record).encode(),
        json.dumps({**record, "message": LONG}).encode(),
        b"no JSON " + text.encode("utf-8", "surrogatepass"),
        b"raw \x9b2J \x1b[2J \xff\xfe\x00",
        json.dumps(record, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    ]
    path = folder / "pallas.log"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


@asynccontextmanager
async def shown(
    folder: Path, fleet: FakeFleet, text: str, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> AsyncIterator[tuple[Workbench, Pilot[Any]]]:
    """The workbench with all its panes on a terminal that listens."""
    monkeypatch.setattr(headless, "HeadlessDriver", Listening)
    monkeypatch.setattr(Listening, "written", [])
    for name, value in (
        ("PALLAS_WORKBENCH_CONFIG", str(folder / "workbench.yaml")),
        ("COLORTERM", "truecolor"),
    ):
        monkeypatch.setenv(name, value)
    for name in ("TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    app = Workbench(
        lambda: fleet,
        name=f"desk {text}",
        late=late_panes(log_of(folder, text)),
        settings=Settings(theme="textual-dark", ascii=False),
        clock=lambda: NOON,
        strict=True,
    )
    async with app.run_test(size=size) as pilot:
        await until(lambda: app.main.query(PromptArea) or app.main.query("#chat-start"), pilot)
        speak(fleet, text)
        app.notify(text, title=text, markup=False)
        app._beat()
        await pilot.pause()
        yield app, pilot


LARGE, SMALL = (120, 40), (60, 20)


async def resize(app: Workbench, pilot: Pilot[Any], size: tuple[int, int]) -> None:
    await pilot.resize_terminal(*size)
    await until(lambda: app.screen.size == size == app.screen._compositor.size, pilot)
    await pilot.pause()


async def visit(place: Place, text: str, app: Workbench, pilot: Pilot[Any]) -> None:
    """Go there in a terminal of one size, look, give it the other size, look again, and go back."""
    if place.screen == "MainScreen" and app.size != LARGE:  # a pane of it can give way when it grows
        await resize(app, pilot, LARGE)
    app.notify(text, title=text, markup=False)
    for key in place.keys:
        await pilot.press(key)
        await pilot.pause()
    await until(lambda: type(app.screen).__name__ == place.screen, pilot)
    assert unruly(app) == []
    app.clear_notifications()
    before, other = (LARGE, SMALL) if app.size == LARGE else (SMALL, LARGE)
    if place.seen and before == LARGE:
        await until(lambda: MARK in screen_text(app), pilot)
    await resize(app, pilot, other)
    assert unruly(app) == []
    if place.seen and other == LARGE:
        await until(lambda: MARK in screen_text(app), pilot)
    assert app.is_running
    for _ in range(4):
        await pilot.press("escape")
        if app.screen is app.main:
            break
    await pilot.pause()
    assert app.screen is app.main
    assert unruly(app) == []
    written = "".join(Listening.written)
    Listening.written.clear()
    assert len(written) > 5_000
    assert stray(written) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("places", PLACES)
async def test_nothing_but_text_reaches_the_terminal(
    places: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = TEXTS[kind]
    fleet = hostile_fleet(text)
    async with shown(tmp_path, fleet, text, monkeypatch, LARGE) as (app, pilot):
        if kind == "sanitised":  # then nothing is left for the last look to do
            app._filters.remove(OUTPUT_GUARD)
        else:  # most places are come to in a large terminal with one of them, in a small one with the other
            await resize(app, pilot, SMALL)
        for place in PLACES[places]:
            try:
                await visit(place, text, app, pilot)
            except BaseException as error:
                error.add_note(f"at the place: {place.name}")
                raise
        for _ in range(4):
            await pilot.press("escape")
        await pilot.pause()
        assert unruly(app) == []
        assert app.is_running
    assert stray("".join(Listening.written)) == []
    assert app.return_code in (None, 0)


@pytest.mark.slow
async def test_a_very_long_text_moves_nothing_and_crashes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = sanitize(LONG, 20_000)
    async with shown(tmp_path, hostile_fleet(text), text, monkeypatch, (80, 24)) as (app, pilot):
        for key in ("f2", "f3", "f4", "f5", "f6"):
            await pilot.press(key)
            await pilot.pause()
            assert unruly(app) == []
        assert app.is_running
    assert stray("".join(Listening.written)) == []


# What comes in by the workbench itself: over MCP, by files, by the clipboard


@dataclass
class Chat:
    """A chat pane with a hostile agent, on a terminal that listens."""

    app: PaneApp
    pilot: Pilot[Any]
    server: EchoAgent

    async def until(self, condition: Any) -> Any:
        return await until(condition, self.pilot)

    async def ask(self, words: str) -> None:
        view = self.app.query_one(ChatPane)._current
        assert view is not None
        view._prompt.insert(words)
        await self.pilot.press("enter")
        await self.until(lambda: view.conversation.run is None and len(view.conversation.entries) > 1)
        await self.until(lambda: MARK in self.app.screen_text() or "漢漢" in self.app.screen_text())


@asynccontextmanager
async def chatting(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> AsyncIterator[Chat]:
    monkeypatch.setattr(headless, "HeadlessDriver", Listening)
    monkeypatch.setattr(Listening, "written", [])
    monkeypatch.setattr(echo_agent, "HOSTILE", text)
    monkeypatch.setenv("COLORTERM", "truecolor")
    for name in ("TMUX", "STY", "DISPLAY", "WAYLAND_DISPLAY", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    async with EchoAgent() as server:
        pane = ChatPane(base=folder)
        app = PaneApp(pane, (agent("echo", server.port, url=server.url, vision=True),))
        async with app.run_test(size=(100, 30)) as pilot:
            chat = Chat(app, pilot, server)
            await chat.until(lambda: pane._current is not None and pane._current._prompt.has_focus)
            yield chat
            await pilot.pause()
            assert unruly(app, allowed=lambda action: action.startswith("link(")) == []
    assert stray("".join(Listening.written)) == []


ANSWERS = {
    "plain": HOSTILE,
    "heading": f"# {HOSTILE}",
    "list and quote": f"- {HOSTILE}\n\n> {HOSTILE}",
    "code": f"```{HOSTILE}\n{HOSTILE}\n```",
    "table": f"| {MARK} | b |\n|---|---|\n| {HOSTILE} | {HOSTILE} |",
    "long": LONG,
}


@pytest.mark.slow
@pytest.mark.parametrize("text", ANSWERS.values(), ids=ANSWERS)
async def test_an_answer_is_text_whatever_markdown_it_has(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(tmp_path, monkeypatch, text) as chat:
        await chat.ask("hostile")
        await chat.pilot.resize_terminal(60, 20)
        await chat.pilot.press("escape", "k")


async def test_a_fault_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = EchoAgent.answer

    async def failing(self: EchoAgent, arguments: dict[str, Any], ctx: Any) -> Any:
        if arguments["message"] != "hostile":
            return await real(self, arguments, ctx)
        body = {"error": HOSTILE, "code": -32002, "data": {"type": "UPSTREAM", "retryable": True}}
        content = [TextContent(type="text", text=json.dumps(body))]
        return CallToolResult(content=content, is_error=True)

    monkeypatch.setattr(EchoAgent, "answer", failing)
    async with chatting(tmp_path, monkeypatch, HOSTILE) as chat:
        await chat.ask("hostile")


@pytest.mark.slow
async def test_names_of_files_and_what_is_pasted_are_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{MARK}\x1b]52;c;cm0=\x07\u202e[@click=app.quit]x.png"
    (tmp_path / name).write_bytes(picture())
    async with chatting(tmp_path, monkeypatch, HOSTILE) as chat:
        view = chat.app.query_one(ChatPane)._current
        assert view is not None
        await view.tray.take(tmp_path / name)
        await chat.until(lambda: MARK in chat.app.screen_text())
        await chat.pilot.press("alt+o")
        await chat.until(lambda: "filter" in chat.app.screen_text() and MARK in chat.app.screen_text())
        await chat.pilot.press("escape")
        # What is edited stays as it is; the workbench's last filter draws it.
        chat.app._filters.append(OUTPUT_GUARD)
        chat.app.post_message(Paste(HOSTILE))
        await chat.until(lambda: MARK in view._prompt.text)


async def test_what_is_copied_is_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless, "HeadlessDriver", Listening)
    monkeypatch.setattr(Listening, "written", [])
    app = PaneApp(ChatPane(base=tmp_path))
    async with app.run_test():
        await copy(app, HOSTILE, {"PATH": "", "TMUX": "x"})
    sent = [each for each in Listening.written if "]52;" in each]
    assert len(sent) == 2
    for each in sent:
        payload = each.rpartition(";")[2].partition("\a")[0]
        assert base64.b64decode(payload).decode() == without_controls(HOSTILE)
