"""How the chat pane looks; `make test ARGS="tests/snapshot --snapshot-update"` after an intended change."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.fake_fleet import agent
from support.looks import Pictures, in_sizes, in_themes
from support.pane_app import PaneApp, still
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from pallas.model import AgentSnapshot, AgentState, Fault, FaultType, Health, HealthStatus, Image
from pallas_tui.chat_client import AgentReply, OnProgress
from pallas_tui.widgets.chat import ChatPane
from pallas_tui.widgets.chat.agent_chooser import AgentChooser
from pallas_tui.widgets.chat.conversation_view import ConversationView
from pallas_tui.widgets.chat.prompt_area import PathLine

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 84_000
ANSWER = """Three customers were hit by the **May invoice bug**:

1. Acme, twice
2. Globex
3. Initech

```sql
SELECT customer FROM invoices WHERE month = '2026-05' AND total < 0;
```

The fix is described in [ticket 1182](https://example.invalid/1182).
"""


CALLS = (
    "concierge step 1 (tool)",
    "research/ask: started",
    "research step 1 (tool)",
    "docs/search: started",
    "docs/search: completed",
    "vault/lookup: started",
    "vault/lookup: failed",
    "research/ask: completed",
    "concierge step 2 (llm)",
)


class Spent:
    """Seconds that calls took, which no clock needs to wait for."""

    seconds = 0.0


class Scripted:
    """Answers as the message says, in a time that never changes."""

    def __init__(self, url: str, conversation: str, **how: Any) -> None:
        self.url = url

    async def send(
        self, text: str, images: Sequence[Image] = (), on_progress: OnProgress | None = None, **more: Any
    ) -> AgentReply:
        tell = on_progress or (lambda _: None)
        if "hit" in text:
            for message in CALLS:
                Spent.seconds += 0.3
                tell(message)
            return AgentReply(text=ANSWER, seconds=3.1, steps=4, tools=3, tokens_in=1_840, tokens_out=212)
        if "ticket" in text:
            raise Fault(FaultType.UPSTREAM, "the model is overloaded; try again in a minute", retryable=True)
        tell("concierge step 1 (llm)")
        tell("concierge » Acme was hit **twice**, on the")
        tell("research/ask: completed")
        await asyncio.Event().wait()
        raise AssertionError

    async def close(self) -> None:
        """Nothing is open."""


def fleet() -> tuple[AgentSnapshot, ...]:
    return (
        agent("concierge", 24201, depends_on=("research", "engineering"), description="Asks the right one"),
        agent("research", 24202, description="Searches the documents"),
        agent(
            "engineering",
            24203,
            description="Knows the tickets",
            health=Health(HealthStatus.DEGRADED, "tickets: connection refused since 14:01"),
        ),
        agent("vision", 24204, vision=True, description="Looks at pictures"),
    )


def chat(base: Path | None = None) -> PaneApp:
    Spent.seconds = 0.0
    pane = ChatPane(connect=Scripted, base=base, stopwatch=lambda: pane._now + Spent.seconds)
    return PaneApp(pane, fleet())


async def current(pilot: Pilot[Any]) -> ConversationView:
    pane = pilot.app.query_one(ChatPane)
    view: ConversationView = await until(lambda: pane._current, pilot)
    await until(lambda: view.is_mounted and view._prompt.has_focus, pilot)
    return view


async def ask(pilot: Pilot[Any], view: ConversationView, text: str) -> None:
    view._prompt.insert(text)
    await pilot.press("enter")


async def talk(pilot: Pilot[Any]) -> None:
    """A conversation with an answer, an error, and a run in the middle of its work."""
    app, view = pilot.app, await current(pilot)
    assert isinstance(app, PaneApp)
    await ask(pilot, view, "Which customers were hit by the May invoice bug?")
    await until(lambda: view.conversation.run is None and "ticket 1182" in app.screen_text(), pilot)
    await ask(pilot, view, "Is there a ticket?")
    await until(lambda: view.conversation.run is None and "overloaded" in app.screen_text(), pilot)
    await ask(pilot, view, "How often was Acme?")
    await until(lambda: "Acme was hit twice" in app.screen_text(), pilot)
    app.feed(later=2)
    await until(lambda: "  2 s" in app.screen_text() and view.transcript.at_end, pilot)
    still(app)
    await pilot.pause()


@pytest.mark.slow
async def test_a_conversation(pictures: Pictures) -> None:
    await pictures(chat(), talk, in_sizes("80x24", "120x40") + in_themes("80x24"))
    await pictures(chat(), talk, in_sizes("60x20"))


@pytest.mark.slow
async def test_the_calls_of_an_answer(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app, view = pilot.app, await current(pilot)
        assert isinstance(app, PaneApp)
        await ask(pilot, view, "Which customers were hit by the May invoice bug?")
        await until(lambda: view.conversation.run is None and "ticket 1182" in app.screen_text(), pilot)
        await pilot.press("escape", "t", "down")
        await until(lambda: "vault/lookup" in app.screen_text(), pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before, in_sizes("60x20", "80x24"))


async def test_a_command_being_typed(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app, view = pilot.app, await current(pilot)
        assert isinstance(app, PaneApp)
        await ask(pilot, view, "/help")
        await until(lambda: "Leaves; asks first" in app.screen_text(), pilot)
        view._prompt.insert("/set ")
        await until(lambda: "The title of the thread." in app.screen_text(), pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before)


@pytest.mark.slow
async def test_side_by_side(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app, _ = pilot.app, await current(pilot)
        assert isinstance(app, PaneApp)
        pane = app.query_one(ChatPane)
        pane.begin_beside(("concierge", "research", "engineering"))
        await until(lambda: len(pane._beside) == 3 and pane._shared.has_focus, pilot)
        pane._shared.insert("Which customers were hit?")
        await pilot.press("enter")
        await until(lambda: app.screen_text().count("Initech") == 3, pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before, in_sizes("120x40") + in_themes("120x40"))


async def test_saved_prompts(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app, view = pilot.app, await current(pilot)
        assert isinstance(app, PaneApp)
        view.desk.prompts.save("invoice bug", "Which customers were hit by the May invoice bug?")
        view.desk.prompts.save("stock", "How many Tern desk lamps are left?")
        view._prompt.insert("a draft")
        await pilot.press("f7", "s")
        await until(lambda: "save the prompt as: s" in app.screen_text(), pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before, in_sizes("60x20", "120x40"))


async def test_choosing_an_agent(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await current(pilot)
        app = pilot.app
        assert isinstance(app, PaneApp)
        await pilot.press("ctrl+t")
        await until(lambda: app.screen.query_one(AgentChooser).query_one(Input).has_focus, pilot)
        options = app.screen.query_one(OptionList)
        await until(lambda: options.highlighted == 0, pilot)
        await pilot.press("down")
        await until(lambda: options.highlighted == 1, pilot)
        await until(lambda: "Looks at pictures" in app.screen_text(), pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before, in_sizes("80x24", "120x40"))


async def test_while_the_fleet_starts(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, PaneApp)
        app.pane.focus_pane()
        await until(lambda: "connecting" in app.screen_text(), pilot)
        still(app)
        await pilot.pause()

    starting = (
        agent("concierge", 24201, state=AgentState.WAITING, depends_on=("research",)),
        agent("research", 24202, state=AgentState.CONNECTING),
        agent("vision", 24204, state=AgentState.ERROR, error="ModuleNotFoundError: No module named 'vison'"),
    )
    await pictures(PaneApp(ChatPane(), starting), before, in_sizes("80x24", "120x40"))


async def test_an_image_for_an_agent_that_is_degraded_and_blind(pictures: Pictures, tmp_path: Path) -> None:
    (tmp_path / "invoice.png").write_bytes(PNG)

    async def before(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, PaneApp)
        await current(pilot)
        app.query_one(ChatPane).open_agent("engineering")
        await until(lambda: "connection refused since" in app.screen_text(), pilot)
        view = await current(pilot)
        view._prompt.insert("What is wrong\nwith this invoice?")
        await pilot.press("ctrl+o")
        await until(lambda: view.query_one(PathLine).has_focus, pilot)
        view.query_one(PathLine).value = "invoice.png"
        await pilot.press("enter")
        await until(lambda: "invoice.png 84 KB" in app.screen_text() and view._prompt.has_focus, pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(tmp_path), before, in_sizes("80x24", "120x40"))


async def test_an_agent_that_cannot_answer(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        app = pilot.app
        assert isinstance(app, PaneApp)
        view = await current(pilot)
        await ask(pilot, view, "Which customers were hit by the May invoice bug?")
        await until(lambda: view.conversation.run is None and "ticket 1182" in app.screen_text(), pilot)
        broken = Health(HealthStatus.ERROR, "the provider refuses the key: set ANTHROPIC_API_KEY in .env")
        app.feed(agent("concierge", 24201, depends_on=("research",), health=broken), *fleet()[1:])
        await until(lambda: "refuses the key" in app.screen_text(), pilot)
        await pilot.press("k")
        await until(lambda: view.transcript.selected is not None and view.transcript.at_end, pilot)
        still(app)
        await pilot.pause()

    await pictures(chat(), before)
