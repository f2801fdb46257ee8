"""A second `pallas dev` on a project: it attaches to the fleet that runs, after one key."""

from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.live import write_project
from support.shell import screen_text, workbench
from support.threads import started
from support.waiting import until
from textual.pilot import Pilot

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState
from pallas.surfaces.control import control_tokens
from pallas.surfaces.control.token_file import store_token
from pallas_tui.app import Workbench
from pallas_tui.instances.registry_address import WELL_KNOWN
from pallas_tui.placeholder_fleet import outlives

TOKEN = "full-token-of-the-tests"


async def screen_says(app: Workbench, pilot: Pilot[None], text: str) -> None:
    """Wait for ``text`` wherever its lines break: a path may be long."""
    wanted = "".join(text.split())
    try:
        await until(lambda: wanted in "".join(screen_text(app).replace("▕", "").split()), pilot, 60)
    except AssertionError:
        raise AssertionError(screen_text(app)) from None


@pytest.mark.slow
async def test_a_fleet_with_a_token_of_its_own_is_attached_to_with_that_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.setattr(control_tokens, "_taken", {})
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", TOKEN)
    root = write_project(tmp_path / "desk", {"one": None})
    with started(root) as first:
        await until(lambda: first.snapshot().state is FleetState.RUNNING, timeout=60)
        app = workbench(lambda: ThreadedFleet(root))
        async with app.run_test(size=(120, 40)) as pilot:
            sees = partial(screen_says, app, pilot)
            await sees("This project is running already")
            origin = first.snapshot().registry_url.removesuffix(WELL_KNOWN)
            await sees("needs a token, but none is stored for this user")
            await sees("Put its token into PALLAS_CONTROL_TOKEN and run")
            assert origin in screen_text(app)
            assert "no control API" not in screen_text(app)
            assert "attaches to it" not in screen_text(app)
            exposed = store_token("another token", root, urlsplit(origin).port or 0)
            exposed.chmod(0o644)
            await pilot.press("r")
            await sees(f"{exposed} can be read by others")
            exposed.unlink()
            monkeypatch.setenv("PALLAS_CONTROL_TOKEN", TOKEN)
            await pilot.press("r")
            await sees("a attaches to it; it keeps running when you leave")
            await pilot.press("a")
            await sees("attached to this machine (pid")
            assert TOKEN not in screen_text(app)
            assert app.fleet is not None
            app.fleet.stop()


@pytest.mark.slow
async def test_a_second_workbench_on_a_project_attaches_after_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.setattr(control_tokens, "_taken", {})  # tokens of fleets that were started here before
    root = write_project(tmp_path / "desk", {"one": None, "two": None, "three": None})
    with started(root) as first:
        await until(lambda: first.snapshot().state is FleetState.RUNNING, timeout=60)
        app = workbench(lambda: ThreadedFleet(root))
        async with app.run_test(size=(120, 40)) as pilot:
            sees = partial(screen_says, app, pilot)
            await sees("This project is running already")
            await sees("a attaches to it; it keeps running when you leave")
            assert "is in use" not in screen_text(app)
            assert app.fleet is not None
            assert app.fleet.snapshot().origin_elsewhere in first.snapshot().registry_url
            await pilot.press("a")
            await sees("attached to this machine (pid")
            await sees("● 3 ")
            await until(lambda: app.fleet is not None and outlives(app.fleet), pilot)
            app.fleet.stop()
        assert first.snapshot().state is FleetState.RUNNING
