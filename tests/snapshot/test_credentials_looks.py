"""How the credentials pane looks; `--snapshot-update` after an intended change."""

from typing import Any

from support.fake_fleet import NOON
from support.looks import EACH_LOOK, Pictures
from support.pane_app import PaneApp, still
from support.waiting import until
from textual.pilot import Pilot

from pallas.model import AuthHop, Event, RunFinished, RunStarted, ToolEvent
from pallas_tui.text import ASCII
from pallas_tui.widgets.credentials import CredentialsPane

ALICE, VAULT = "3fc29a10" + "0" * 16, "ca11ab1e" + "0" * 16


def hop(run: str, agent: str, to: str, after: float, **more: Any) -> AuthHop:
    fields = {"source": "forwarded", "fingerprint": ALICE, "expires_at": NOON + 754, "status": 200, **more}
    fields = {"method": "tools/call", "audience": ("api://desk",), **fields}
    return AuthHop(run_id=run, agent=agent, downstream=to, at=NOON + after, **fields)


EVENTS: tuple[Event, ...] = (
    RunStarted(
        run_id="7f3a91", agent="concierge", at=NOON, caller="pallas dev", principal=ALICE, span_id="a1"
    ),
    *(hop("7f3a91", "concierge", "docs", 0.1, method=each) for each in ("initialize", "tools/list")),
    ToolEvent(
        run_id="7f3a91",
        agent="concierge",
        at=NOON + 0.2,
        server="research",
        tool="ask",
        phase="started",
        call_id="1",
        span_id="b2",
    ),
    RunStarted(
        run_id="80c1d2", agent="research", at=NOON + 0.3, caller="mcp", principal=ALICE, parent_span="b2"
    ),
    *(hop("80c1d2", "research", "papers", 0.4, tool="find") for _ in range(3)),
    hop("80c1d2", "research", "vault", 0.5, source="configured", fingerprint=VAULT, expires_at=None),
    hop("80c1d2", "research", "tickets", 0.6, status=401),
    RunFinished(run_id="80c1d2", agent="research", at=NOON + 1, outcome="ok", seconds=0.7),
    hop("7f3a91", "concierge", "research", 1.0, tool="ask"),
    hop("7f3a91", "concierge", "docs", 1.1, source="none", fingerprint="", expires_at=None, audience=()),
    RunStarted(run_id="91ab02", agent="vision", at=NOON + 2),
)


async def settle(pilot: Pilot[Any], text: str, *keys: str) -> None:
    app = pilot.app
    assert isinstance(app, PaneApp)
    app.pane.focus_pane()
    if text != "No requests yet":
        app.feed(events=EVENTS, later=3)
    await pilot.press(*keys)
    await until(lambda: text in app.screen_text(), pilot)
    still(app)
    await pilot.pause()


async def test_the_hops(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "vision", "up", "up", "up")

    await pictures(PaneApp(CredentialsPane()), before, EACH_LOOK)


async def test_only_what_is_odd_in_ascii(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "tickets", "o")

    await pictures(PaneApp(CredentialsPane(ASCII)), before)


async def test_no_hops_yet(pictures: Pictures) -> None:
    async def before(pilot: Pilot[Any]) -> None:
        await settle(pilot, "No requests yet")

    await pictures(PaneApp(CredentialsPane()), before)
