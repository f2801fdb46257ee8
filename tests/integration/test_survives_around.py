"""A served fleet while the world around it changes: the clock, the configuration, its own folder."""

import asyncio
import shutil
import signal
from pathlib import Path

import pytest
from support.live import ERAS, agent_module, write_project
from support.offline import offline_project
from support.served import served, text_of
from support.turnstile import turnstile
from support.waiting import until

# Python runs this before anything else: what the process takes for the time is off by what a file says.
CLOCK = """
import time

_true, _true_ns = time.time, time.time_ns


def _off():
    try:
        with open({file!r}) as file:
            return float(file.read() or 0)
    except (OSError, ValueError):
        return 0.0


time.time = lambda: _true() + _off()
time.time_ns = lambda: _true_ns() + int(_off() * 1e9)
"""
DAY = 86_400.0
SCRIPT = """
rules:
  - when: {last: user, text: hold}
    call: [{tool: stile__go, arguments: {who: "{{ last }}"}}]
  - when: {last: tool}
    say: "{{ result }}"
  - say: "turn {{ turns }}"
"""


@pytest.mark.slow
@pytest.mark.parametrize("jump", [3 * DAY, -3 * DAY, 3650 * DAY], ids=["forward", "back", "years"])
async def test_a_clock_that_jumps_ends_no_run_and_no_conversation(tmp_path: Path, jump: float) -> None:
    off = tmp_path / "off"
    startup = tmp_path / "startup"
    startup.mkdir()
    (startup / "sitecustomize.py").write_text(CLOCK.format(file=str(off)))
    async with turnstile() as stile:
        root = offline_project(
            tmp_path / "p",
            {"one": agent_module("one", ("stile",))},
            SCRIPT,
            top={"bind": "127.0.0.1"},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        with served(root, PYTHONPATH=str(startup)) as fleet:
            await fleet.says("] running")
            async with fleet.client("one", ERAS[0]) as one, fleet.client("one", ERAS[1]) as elder:
                callers = {"known": one, "known-too": elder}
                for handle, each in callers.items():
                    known = {"message": "hi", "conversation_id": handle}
                    assert text_of(await each.call_tool("send_message", known)) == "turn 1"
                calls = [
                    asyncio.create_task(each.call_tool("send_message", {"message": "hold a"}))
                    for each in callers.values()
                ]
                await until(lambda: stile.arrived == ["hold a", "hold a"])
                off.write_text(str(jump))
                for handle, each in callers.items():
                    known = {"message": "hi", "conversation_id": handle}
                    assert text_of(await each.call_tool("send_message", known)) == "turn 2"
                    assert not (await each.call_tool("get_health", {})).is_error
                assert (await fleet.get("/readyz")).status_code == 200
                fleet.send(signal.SIGTERM)
                await fleet.says("draining: 2 runs in flight, ")
                stile.open.set()
                assert [text_of(await call) for call in calls] == ["hold a went through"] * 2
            assert await fleet.ended() == 0


@pytest.mark.slow
async def test_a_configuration_that_is_deleted_changes_nothing_and_is_told_when_it_is_wanted(
    tmp_path: Path,
) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root) as fleet:
        await fleet.says("] running")
        url, origin = fleet.url("one"), fleet.registry
        kept = (root / "agents.yaml").read_text()
        async with fleet.client("one", ERAS[0]) as one, fleet.client("one", ERAS[1]) as elder:
            (root / "agents.yaml").unlink()
            for each in (one, elder):
                assert text_of(await each.call_tool("send_message", {"message": "hi"})) == "hi"
            fleet.send(signal.SIGHUP)
            line = await fleet.says("not reloaded")
            assert "agents.yaml: there is no such file" in line
            for each in (one, elder):
                assert text_of(await each.call_tool("send_message", {"message": "again"})) == "again"
            (root / "agents.yaml").write_text(kept)
            fleet.send(signal.SIGHUP)
            await fleet.says("project: nothing changed")
            assert (fleet.url("one"), fleet.registry) == (url, origin)
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0


@pytest.mark.slow
async def test_a_project_whose_folder_is_deleted_is_served_on(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root) as fleet:
        await fleet.says("] running")
        async with fleet.client("one", ERAS[0]) as one:
            shutil.rmtree(root)
            assert text_of(await one.call_tool("send_message", {"message": "hi"})) == "hi"
            fleet.send(signal.SIGHUP)
            await fleet.says("not reloaded")
            assert text_of(await one.call_tool("send_message", {"message": "again"})) == "again"
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
