"""The inspector over a real fleet that runs elsewhere: written to, read, refused, edited, sent again."""

from pathlib import Path
from typing import Any

import pytest
from support.control import FULL, serving
from support.live import running
from support.shell import line_with, screen_text, workbench
from support.typed import typed_project
from support.waiting import until
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from pallas.fleet.local_port import LocalPort
from pallas_tui.app import Workbench
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.screens.messages_screen import MessagesScreen, SendScreen
from pallas_tui.widgets.messages import MessagesPane
from pallas_tui.widgets.messages.send_pane import SendPane

DESK = '''
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, SystemError

    @dataclass
    class Greeting:
        """Who is greeted."""

        name: str
        times: int = 1

    @dataclass
    class Shout:
        text: str

    @dataclass
    class Loud:
        text: str

    async def greeter(payload, metadata):
        if isinstance(payload, Greeting):
            to = "vault" if payload.name == "vault" else "shouter"
            return HandlerResponse(Shout(f"hello {payload.name}"), to=to)
        return HandlerResponse.respond(Loud("refused") if isinstance(payload, SystemError) else payload)

    async def shouter(payload, metadata):
        return HandlerResponse.respond(Loud(payload.text.upper()))

    async def vault(payload, metadata):
        return None
'''
AGENTS = {
    "greeter": {"payload": "Greeting", "peers": ["shouter"]},
    "shouter": {"payload": "Shout"},
    "vault": {"payload": "Shout"},
}


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


async def send(app: Workbench, pilot: Pilot[Any], name: str) -> None:
    """Write a greeting by the form, opened from the list of agents."""
    await pilot.press("f2", "home")
    await until(lambda: app.main.query_one("#agent-list").has_focus, pilot)
    await pilot.press("w")
    await until(lambda: isinstance(app.screen, SendScreen) and app.screen.query(SendPane), pilot)
    pane = app.screen.query_one(SendPane)
    await until(lambda: pane.fields.rows, pilot)
    if pane.writing:  # the first time
        pane.editor.area.load_text(name)
        await pilot.press("enter")
    pane.form.edit_raw(f'{{"name": "{name}"}}')
    pane.form_changed()
    await pilot.press("c")
    await until(lambda: pane._outcome is not None and not pane._calling, pilot)


@pytest.mark.slow
async def test_handlers_of_a_fleet_elsewhere_are_written_to_read_and_asked_again_after_an_edit(
    tmp_path: Path,
) -> None:
    # HC-12
    root = typed_project(tmp_path / "desk", DESK, AGENTS)
    async with running(root) as fleet, serving(LocalPort(fleet)) as served:  # type: ignore[arg-type]
        remote = RemoteFleet(served.url, TokenSource(served.url, FULL))
        app = workbench(lambda: remote)
        try:
            async with app.run_test(size=(120, 40)) as pilot:
                await until(lambda: isinstance(app.focused, Input) and remote.can_control, pilot)
                await until(lambda: len(remote.snapshot().agents) == 3, pilot)
                await send(app, pilot, "Ada")
                await until(lambda: "HELLO ADA" in screen_text(app), pilot)

                # What is wrong is told at the field that the fleet says.
                pane = app.screen.query_one(SendPane)
                await pilot.press("2")
                pane.query_one("#tool-json", TextArea).load_text('{"name": "Ada", "times": "many"}')
                await pilot.press("ctrl+r", "y")
                await until(lambda: pane._section == "form" and pane.fields.selected is not None, pilot)
                selected = pane.fields.selected
                assert selected is not None and selected.path == ("times",)
                await pilot.press("escape")

                # Refused: the operator reads why, with both names.
                await send(app, pilot, "vault")
                await pilot.press("escape", "escape")
                await until(lambda: app.screen is app.main, pilot)
                await pilot.press("M")
                await until(lambda: isinstance(app.screen, MessagesScreen), pilot)
                await until(lambda: "✖ greeter → vault  routing" in screen_text(app), pilot)
                messages = app.screen.query_one(MessagesPane)
                await pilot.press("home", "down")
                await until(lambda: "hello vault" in screen_text(app), pilot)
                assert "not among its peers" in line_with(app, "why")

                # The run before, and its first message again at the handler as it is after an edit.
                await pilot.press("left_square_bracket", "home")
                await until(lambda: messages.view.line_count() == 4 and "Ada" in screen_text(app), pilot)
                (root / "desk.py").write_text(
                    (root / "desk.py").read_text().replace(".upper()", '.upper() + "!"')
                )
                for name in ("greeter", "shouter"):
                    fleet.control(name, "reload")
                await until(
                    lambda: all(fleet.snapshot().agent(n).version == 2 for n in ("greeter", "shouter")),  # type: ignore[union-attr]
                    pilot,
                )
                await pilot.press("p")
                await until(lambda: "2 lines differ" in screen_text(app), pilot)
                text = screen_text(app)
                assert "-   <text>HELLO ADA</text>" in text
                assert "+   <text>HELLO ADA!</text>" in text
                # The new run stands beside the old one.
                await until(lambda: screen_text(app).count("shouter → greeter") == 2, pilot)
        finally:
            remote.stop(10)
