from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet
from support.pane_app import PaneApp
from support.shell import screen_text
from support.waiting import until
from textual.pilot import Pilot

from pallas.model import AuthHop, RunFinished, RunStarted
from pallas_tui.app import Workbench
from pallas_tui.screens.main_screen import LatePane
from pallas_tui.screens.sheet_screen import TextScreen
from pallas_tui.settings import Settings
from pallas_tui.targets import Reveal, RunTarget
from pallas_tui.widgets.credentials import CredentialsPane
from pallas_tui.widgets.pane import Pane

KEY = "a11ce" + "0" * 19


def started(run: str, agent: str = "concierge", **more: Any) -> RunStarted:
    return RunStarted(
        **{"run_id": run, "agent": agent, "at": NOON, "principal": KEY, "caller": "curl", **more}
    )


def hop(run: str, to: str, **more: Any) -> AuthHop:
    fields = {"agent": "concierge", "source": "forwarded", "fingerprint": KEY, "status": 200, **more}
    return AuthHop(**{"run_id": run, "downstream": to, "at": NOON + 1, "method": "tools/call", **fields})


class Credentials:
    """A credentials pane in an application."""

    def __init__(self, app: PaneApp, pane: CredentialsPane, pilot: Pilot[None]) -> None:
        self.app, self.pane, self.pilot = app, pane, pilot

    def say(self, *events: Any, later: float = 0) -> None:
        self.app.feed(events=events, later=later)

    async def until_shown(self, *texts: str, gone: bool = False) -> str:
        def shows() -> bool:
            screen = self.app.screen_text()
            return all((text in screen) is not gone for text in texts)

        await until(shows, self.pilot)
        return self.app.screen_text()

    def row(self, text: str) -> str:
        return next(row for row in self.app.screen_text().splitlines() if text in row)


@pytest.fixture
async def traces(request: pytest.FixtureRequest) -> AsyncIterator[Credentials]:
    pane = CredentialsPane()
    app = PaneApp(pane)
    async with app.run_test(size=getattr(request, "param", (120, 16))) as pilot:
        pane.focus_pane()
        yield Credentials(app, pane, pilot)


async def test_an_empty_pane_says_how_hops_come_about(traces: Credentials) -> None:
    await traces.until_shown("No requests yet.", "Ask an agent something", "forward_inbound_auth: true")
    assert traces.pane.caption == ""


async def test_a_hop_is_a_line_and_its_time_runs_down(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault", expires_at=NOON + 100, audience=("api://vault",)))
    await traces.until_shown("concierge → vault tools/call")
    row = traces.row("→ vault")
    for part in ("r1", "forward", "a11ce000", "api://vault", "00:01:40", "200"):
        assert part in row
    traces.say(later=41)
    await traces.until_shown("00:00:59")
    assert len(traces.row("→ vault")) == len(row)
    traces.say(later=60)
    await traces.until_shown("expired")


@pytest.mark.parametrize("traces", [(60, 20)], indirect=True)
async def test_in_a_small_terminal_the_same_is_told(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault", expires_at=NOON + 100, status=401))
    await traces.until_shown("→ vault")
    for part in ("◐", "fwd", "a11ce0", "00:01:40", "401"):
        assert part in traces.row("→ vault")


async def test_o_shows_only_what_is_odd_with_the_reason_and_escape_goes_back(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"), hop("r1", "tickets", status=401))
    await traces.until_shown("→ tickets")
    assert traces.row("→ tickets").startswith("◐")
    assert not traces.row("→ vault").startswith("◐")
    await traces.pilot.press("o")
    await traces.until_shown("→ vault", gone=True)
    assert traces.pane.caption == "1 request of 3 with a finding"
    full_text = traces.pane.full_text()
    assert full_text is not None
    assert "Findings:\n  refused with 401" in full_text[1]
    await traces.pilot.press("escape")
    await traces.until_shown("→ vault")
    assert traces.pane.caption == ""


async def test_when_nothing_is_odd_it_says_so(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"))
    await traces.until_shown("→ vault")
    await traces.pilot.press("o")
    await traces.until_shown("There is no finding in the 2 requests that are kept. Press o to see all.")


@pytest.mark.slow
async def test_the_filter_takes_words_and_parts(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"), hop("r1", "docs", source="none", fingerprint=""))
    await traces.until_shown("→ docs")
    await traces.pilot.press("slash", *"source:none")
    await traces.until_shown("→ vault", gone=True)
    assert traces.pane.caption == "filter: source:none"
    await traces.pilot.press("enter", "slash", *" nowhere")
    await traces.until_shown("No request matches.")
    await traces.pilot.press("escape")
    await traces.until_shown("→ vault")


def lines(traces: Credentials) -> list[str]:
    """What is shown, without the scrollbar, which may well tell that there is more now."""
    return [line[:-2] for line in traces.app.screen_text().splitlines()]


async def test_what_is_read_stays_and_what_came_is_counted(traces: Credentials) -> None:
    traces.say(started("r1"), *[hop("r1", f"server{n}") for n in range(40)])
    await traces.until_shown("→ server39")
    await traces.pilot.press("up", "up")
    before = lines(traces)
    traces.say(*[hop("r1", f"late{n}") for n in range(3)])
    await until(lambda: traces.pane.caption == "3 new below", traces.pilot)
    assert lines(traces) == before
    await traces.pilot.press("f")
    await traces.until_shown("→ late2")


async def test_a_hidden_pane_paints_nothing_and_catches_up(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"))
    await traces.until_shown("→ vault")
    traces.pane.hide_pane()
    traces.say(hop("r1", "docs"))
    await traces.pilot.pause()
    assert "docs" not in traces.app.screen_text()
    traces.pane.show_pane()
    await traces.until_shown("→ docs")


async def test_hostile_text_is_text(traces: Credentials) -> None:
    traces.say(started("r1", caller="[@click=app.quit]x[/]"), hop("r1", "[bold]vault[/]"))
    await traces.until_shown("[@click=app.quit]x[/]", "[bold]vault[/]")


async def test_y_copies_the_hop_in_full(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"))
    await traces.until_shown("→ vault")
    await traces.pilot.press("y")
    await until(lambda: KEY in traces.app.clipboard, traces.pilot)


async def test_a_run_is_revealed_with_what_it_asked_for(traces: Credentials) -> None:
    traces.say(started("r1"), hop("r1", "vault"), started("r2", "research"), hop("r2", "docs"))
    await traces.until_shown("→ docs")
    await traces.pilot.press("o")
    assert traces.pane.reveal(RunTarget("r1", pane="credentials"))
    await traces.until_shown("→ vault")
    assert "→ docs" not in traces.app.screen_text()
    assert traces.pane.requests.cursor == 0
    assert not traces.pane.reveal(RunTarget("gone", pane="credentials"))


async def test_in_the_workbench_a_hop_opens_and_leads_to_its_run() -> None:
    fleet = FakeFleet()
    panes: list[CredentialsPane] = []

    def make() -> Pane:
        panes.append(CredentialsPane())
        return panes[0]

    app = Workbench(
        lambda: fleet,
        name="desk",
        late=(LatePane("credentials", "Credentials", make),),
        settings=Settings(theme="textual-dark", ascii=False),
        clock=lambda: NOON,
    )
    async with app.run_test(size=(120, 40)) as pilot:
        fleet.say(
            started("r1"),
            hop("r1", "vault", status=403),
            RunFinished(run_id="r1", agent="concierge", outcome="ok", seconds=1.0, at=NOON + 2),
        )
        await until(lambda: panes, pilot)
        app.main.post_message(Reveal(RunTarget("r1", pane="credentials")))
        await until(lambda: "concierge → vault" in screen_text(app), pilot)
        await pilot.press("down", "enter")
        await until(lambda: isinstance(app.screen, TextScreen), pilot)
        await until(lambda: "refused with 403" in screen_text(app), pilot)
        await pilot.press("escape", "r")
        await until(lambda: app.main.current == "feed", pilot)
