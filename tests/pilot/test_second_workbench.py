"""A second `pallas dev` on a project: it attaches to the fleet that runs, after one key."""

from pathlib import Path

import pytest
from support.live import write_project
from support.shell import screen_text, workbench
from support.threads import started
from support.waiting import until

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState
from pallas.surfaces.control import control_tokens
from pallas_tui.instances.registry_address import WELL_KNOWN
from pallas_tui.placeholder_fleet import outlives

TOKEN = "full-token-of-the-tests"


async def test_a_fleet_with_a_token_of_its_own_is_attached_to_with_that_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.setattr(control_tokens, "_taken", {})
    monkeypatch.setenv("PALLAS_CONTROL_TOKEN", TOKEN)
    root = write_project(tmp_path / "desk", {"one": None})
    with started(root) as first:
        await until(lambda: first.snapshot().state is FleetState.RUNNING, timeout=60)
        app = workbench(lambda: ThreadedFleet(root))
        async with app.run_test(size=(120, 40)) as pilot:

            async def sees(text: str) -> None:
                try:
                    await until(lambda: text in " ".join(screen_text(app).split()), pilot, 60)
                except AssertionError:
                    raise AssertionError(screen_text(app)) from None

            await sees("This project is running already")
            origin = first.snapshot().registry_url.removesuffix(WELL_KNOWN)
            await sees("wants a token, but none is stored for this user")
            await sees("Put its token into PALLAS_CONTROL_TOKEN and run")
            assert origin in screen_text(app)
            assert "no control API" not in screen_text(app)
            assert "attaches to it" not in screen_text(app)
            monkeypatch.setenv("PALLAS_CONTROL_TOKEN", TOKEN)
            await pilot.press("r")
            await sees("a attaches to it; it runs on when you leave")
            await pilot.press("a")
            await sees("attached to this machine (pid")
            assert TOKEN not in screen_text(app)
            assert app.fleet is not None
            app.fleet.stop()


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

            async def sees(text: str) -> None:
                try:
                    await until(lambda: text in screen_text(app), pilot, 60)
                except AssertionError:
                    raise AssertionError(screen_text(app)) from None

            await sees("This project is running already")
            await sees("a attaches to it; it runs on when you leave")
            assert "is in use" not in screen_text(app)
            assert app.fleet is not None
            assert app.fleet.snapshot().origin_elsewhere in first.snapshot().registry_url
            await pilot.press("a")
            await sees("attached to this machine (pid")
            await until(lambda: app.fleet is not None and outlives(app.fleet), pilot)
            app.fleet.stop()
        assert first.snapshot().state is FleetState.RUNNING
