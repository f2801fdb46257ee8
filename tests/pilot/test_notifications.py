"""What is told while nobody looks: long runs that end, agents that break; by bell, title and desktop."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from support.fake_fleet import NOON, FakeFleet, desk
from support.notices import noticed
from support.shell import screen_text, workbench
from support.waiting import until
from textual.events import AppBlur, AppFocus
from textual.widgets import Input

from pallas.model import Health, HealthStatus, RunFinished, RunStarted
from pallas_tui.app import Workbench
from pallas_tui.frame import FleetFrame
from pallas_tui.settings import Notify, Settings
from pallas_tui.shell.notifications import (
    BURST,
    DesktopNotification,
    NotificationLimit,
    NotificationSource,
    desktop_sequence,
    program,
    title_of,
    title_sequence,
)
from pallas_tui.state import summarise

WIDE = (120, 40)
OK = Health(HealthStatus.OK, "", NOON, NOON)
BAD = Health(HealthStatus.ERROR, "no key", NOON, NOON)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What goes to the terminal itself."""
    sent: list[str] = []
    monkeypatch.setattr(Workbench, "write_terminal", lambda self, sequence: sent.append(sequence))
    return sent


def run(number: int, seconds: float, outcome: Any = "ok", **more: Any) -> tuple[RunStarted, RunFinished]:
    run_id = f"r{number}"
    started = RunStarted(at=NOON, run_id=run_id, agent="vision", preview=f"picture {number}", **more)
    ended = RunFinished(at=NOON + 1, run_id=run_id, agent="vision", outcome=outcome, seconds=seconds)
    return started, ended


def wanting(**notify: Any) -> Settings:
    return Settings("textual-dark", False, notify=Notify(**notify))


async def away(app: Workbench, pilot: Any) -> None:
    """The terminal has not the focus any more."""
    app.post_message(AppBlur())
    await until(lambda: not app.app_focus, pilot)


async def test_a_long_run_that_ends_while_one_is_away_rings_and_shows(written: list[str]) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await away(app, pilot)
        fleet.say(*run(1, 9.9), *run(2, 12.0))
        await until(lambda: any("]9;" in sequence for sequence in written), pilot)
        assert "\x1b]9;vision answered after 12.0 s: picture 2\a" in written
        assert written.count("\a") == 1
        assert not any("picture 1" in sequence for sequence in written)


async def test_whoever_looks_at_it_is_not_told_and_whoever_looks_elsewhere_is_told_on_screen(
    written: list[str],
) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        fleet.say(*run(1, 60))
        await until(lambda: "picture 1" in screen_text(app), pilot)  # the feed shows it
        assert "\a" not in written
        await pilot.press("f5", "f8")  # the log alone
        await until(lambda: "A conversation" not in screen_text(app), pilot)
        fleet.say(*run(2, 60, "error"))
        await noticed(app, pilot, "vision failed after 60.0 s")
        assert "\a" in written
        assert not any("]9;" in sequence for sequence in written)


async def test_an_agent_that_breaks_and_recovers_is_told(written: list[str]) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input) and ":24201" in screen_text(app), pilot)
        await away(app, pilot)
        fleet.change("vision", health=BAD)
        await until(lambda: "\x1b]9;vision is in error: no key\a" in written, pilot)
        fleet.change("vision", health=OK)
        await until(lambda: "\x1b]9;vision has recovered\a" in written, pilot)
        assert not any("engineering" in sequence for sequence in written)  # it was so from the first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notify", "sent"),
    [
        ({"bell": False}, ["desktop"]),
        ({"desktop": False}, ["bell"]),
        ({"bell": False, "desktop": False}, []),
        ({"runs": False}, []),
        ({"after": 100}, []),
    ],
)
async def test_each_way_can_be_switched_off(
    written: list[str], notify: dict[str, Any], sent: list[str]
) -> None:
    fleet = FakeFleet()
    app = workbench(fleet, settings=wanting(**notify))
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await away(app, pilot)
        fleet.say(*run(1, 60))
        await until(lambda: "picture 1" in screen_text(app), pilot)
        kinds = ["bell" if one == "\a" else "desktop" for one in written if one == "\a" or "]9;" in one]
        assert kinds == sent


async def test_the_title_tells_project_and_trouble_and_comes_back(written: list[str]) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: "\x1b]2;desk - 1 degraded\a" in written, pilot)
        assert written[0] == "\x1b[22;2t"
        fleet.change("vision", health=BAD, runs_active=2)
        await until(lambda: "\x1b]2;desk - 1 error, 1 degraded, 2 runs\a" in written, pilot)
        app.keep_setting("notify.title", False)
        fleet.change("vision", health=OK)
        await until(lambda: written[-1] == "\x1b[23;2t", pilot)
        app.keep_setting("notify.title", True)
        fleet.change("vision", runs_active=0)
        await until(lambda: written[-1] == "\x1b]2;desk - 1 degraded\a", pilot)
    assert written[-1] == "\x1b[23;2t"
    assert written.count("\x1b[22;2t") == written.count("\x1b[23;2t") == 2


async def test_back_at_the_terminal_one_is_told_on_screen_again(written: list[str]) -> None:
    fleet = FakeFleet()
    app = workbench(fleet)
    async with app.run_test(size=WIDE) as pilot:
        await until(lambda: isinstance(app.focused, Input), pilot)
        await away(app, pilot)
        app.post_message(AppFocus())
        await until(lambda: app.app_focus, pilot)
        fleet.say(*run(1, 60))
        await until(lambda: "picture 1" in screen_text(app), pilot)
        assert "\a" not in written


# Without a screen


def frame(*events: Any, **changes: Any) -> FleetFrame:
    snapshot = desk()
    agents = tuple(replace(one, **changes) if one.name == "vision" else one for one in snapshot.agents)
    return FleetFrame(replace(snapshot, agents=agents), events, NOON)


def titles(watch: NotificationSource, *frames: FleetFrame, wanted: Notify | None = None) -> list[str]:
    return [one.title for each in frames for one in watch.absorb(each, wanted or Notify())]


def test_a_run_that_another_run_asked_for_is_part_of_that_one() -> None:
    outer, outer_end = run(1, 60, trace_id="t" * 32)
    inner, inner_end = run(2, 40, trace_id="t" * 32, parent_span="s" * 16)
    alone = run(3, 50, trace_id="u" * 32, parent_span="s" * 16)
    told = titles(NotificationSource(), frame(outer, inner, inner_end, *alone, outer_end))
    assert told == ["vision answered after 50.0 s", "vision answered after 60.0 s"]
    # When the outer one is over, the trace is forgotten.
    watch = NotificationSource()
    titles(watch, frame(outer, outer_end))
    assert titles(watch, frame(inner, inner_end)) == ["vision answered after 40.0 s"]
    assert not watch._traces


def test_many_at_once_are_one_notification() -> None:
    many = [event for number in range(5) for event in run(number, 60)]
    assert titles(NotificationSource(), frame(*many)) == ["5 runs ended"]


def test_how_agents_are_at_first_is_no_news_and_starting_is_none_either() -> None:
    from pallas.model import AgentState

    watch = NotificationSource()
    assert titles(watch, frame(health=BAD)) == []
    assert titles(watch, frame(health=OK)) == ["vision has recovered"]
    assert titles(watch, frame(state=AgentState.STOPPED), frame(state=AgentState.IMPORTING), frame()) == []
    assert titles(watch, frame(state=AgentState.ERROR, error="boom")) == ["vision is in error"]
    assert titles(watch, frame(), wanted=Notify(agents=False)) == []


def test_only_so_many_pass_and_the_next_one_tells_of_the_rest() -> None:
    pace, telling = NotificationLimit(), DesktopNotification("t", "text", False, ())
    passed = [pace.pass_on(telling, NOON) for _ in range(BURST + 4)]
    assert sum(one is not None for one in passed) == BURST
    later = pace.pass_on(telling, NOON + 60)
    assert later is not None
    assert later.text == "text (and 4 other notifications)"
    again = pace.pass_on(telling, NOON + 120)
    assert again is not None
    assert again.text == "text"


EVIL = "\x1b]52;c;ZXZpbA==\a\x9b31m\u202eevil;rm\n\x1b\\"


@pytest.mark.parametrize("environ", [{}, {"TERM": "foot"}, {"VTE_VERSION": "7000"}, {"TMUX": "x"}])
def test_nothing_that_others_wrote_is_a_command_to_the_terminal(environ: dict[str, str]) -> None:
    telling = DesktopNotification(EVIL, EVIL, True, ())
    sequence = desktop_sequence(telling, environ)
    inside = sequence.removeprefix("\x1bPtmux;").removesuffix("\x1b\\") if "TMUX" in environ else sequence
    inside = inside.replace("\x1b\x1b", "\x1b")
    assert inside.count("\x1b") == 1
    assert inside.startswith("\x1b]777;notify;" if environ and "TMUX" not in environ else "\x1b]9;")
    assert inside.endswith("\a")
    assert inside.count("\a") == 1
    assert not set(inside) & {"\x9b", "\u202e", "\n"}
    if inside.startswith("\x1b]777"):
        assert inside.count(";") == 3
    title = title_sequence(EVIL)
    assert (title.count("\x1b"), title.count("\a")) == (1, 1)


def test_the_title_is_short_and_clean() -> None:
    summary = summarise(FleetFrame(replace(desk(), name="x" * 500 + EVIL), (), NOON))
    title = title_of(summary, "desk")
    assert len(title) <= 80
    assert title.isprintable()
    assert title_of(None, "desk") == "desk - pallas"


def test_the_programs_get_words_and_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[..., str] = lambda name, path=None: f"/bin/{name}"  # noqa: E731
    monkeypatch.setattr("pallas_tui.shell.notifications.which", found)
    telling = DesktopNotification("--title", "$(evil)", True, ())
    assert program(telling, "linux", {"DISPLAY": ":0"}) == [
        "/bin/notify-send", "-a", "Pallas", "-u", "critical", "--", "--title", "$(evil)",
    ]  # fmt: skip
    assert program(telling, "linux", {}) is None
    command = program(telling, "darwin", {})
    assert command is not None
    assert command[0] == "/bin/osascript"
    assert command[-2:] == ["--title", "$(evil)"]
    assert "$(evil)" not in command[2]
