"""Signals to a fleet that starts or runs: it can be ended at any moment, and SIGHUP never ends it."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support import raw_client
from support.live import ERAS, agent_module, write_project
from support.offline import offline_project
from support.processes import gone
from support.served import Served, served, text_of
from support.turnstile import turnstile
from support.waiting import until

IMPORTS = """
import pathlib, time
from fast_agent import FastAgent

pathlib.Path("importing").write_text("now")
time.sleep({seconds})
fast = FastAgent("one")


@fast.agent(name="one", instruction="You are one.")
async def main() -> None: ...
"""
BLOCKS = """
import time

from fast_agent import FastAgent

fast = FastAgent("slow")


async def ponder() -> str:
    time.sleep(600)
    return "pondered"


@fast.agent(name="slow", instruction="You are slow.", function_tools=[ponder])
async def main() -> None: ...
"""
# Says that it is there, and then nothing more; it heeds neither the end of its input nor a polite signal.
HANGS = """
import os, pathlib, signal, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("hanging").write_text(str(os.getpid()))
time.sleep(600)
"""
# Answers, and heeds neither the end of its input nor a polite signal.
STAYS = """
import os, pathlib, signal, time
from stdio_server import StdioServer

signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = StdioServer("stays")


@server.tool()
def here() -> str:
    pathlib.Path("pid").write_text(str(os.getpid()))
    return "here"


server.run()
time.sleep(600)
"""
HUNG: Mapping[str, Any] = {"mcp": {"servers": {"hung": {"command": "python", "args": ["hangs.py"]}}}}


def hung_project(tmp_path: Path) -> Path:
    """``boss`` waits for ``one``, whose stdio server never answers."""
    return write_project(
        tmp_path / "p",
        {"one": agent_module("one", ("hung",)), "boss": None},
        keys={"boss": {"depends_on": ["one"]}},
        top={"bind": "127.0.0.1"},
        config=HUNG,
        files={"hangs.py": HANGS},
    )


async def ends_cleanly(fleet: Served, number: signal.Signals) -> None:
    """It ends with status 0 and leaves no process behind."""
    below = fleet.children()
    fleet.send(number)
    assert await fleet.ended() == 0, fleet.err
    await until(lambda: all(map(gone, below)))


@pytest.mark.parametrize(
    ("number", "seconds"),  # code that comes to its end, and code that would not
    [(signal.SIGTERM, 2), (signal.SIGTERM, 600), (signal.SIGINT, 600)],
)
async def test_it_ends_while_an_agents_code_is_imported(
    tmp_path: Path, number: signal.Signals, seconds: int
) -> None:
    root = write_project(tmp_path / "p", {"one": IMPORTS.format(seconds=seconds)})
    with served(root) as fleet:
        await until(lambda: (root / "importing").exists(), timeout=60)
        await ends_cleanly(fleet, number)


@pytest.mark.slow
async def test_it_ends_while_a_stdio_server_hangs_and_others_wait_for_its_agent(tmp_path: Path) -> None:
    root = hung_project(tmp_path)
    with served(root) as fleet:
        pid = int(await until((root / "hanging").read_text, timeout=60))
        await fleet.logs("one: connecting")
        await ends_cleanly(fleet, signal.SIGTERM)
        await until(lambda: gone(pid))


@pytest.mark.slow
async def test_it_ends_while_a_stdio_server_of_an_agent_that_answers_still_hangs(tmp_path: Path) -> None:
    keys = {"one": {"start_timeout": 4}}
    root = write_project(
        tmp_path / "p",
        {"one": agent_module("one", ("hung",))},
        keys=keys,
        top={"bind": "127.0.0.1"},
        config=HUNG,
        files={"hangs.py": HANGS},
    )
    with served(root) as fleet:
        await fleet.says("running")
        await until(lambda: (root / "hanging").exists())
        await ends_cleanly(fleet, signal.SIGTERM)
        assert "by force" not in fleet.err


@pytest.mark.slow
async def test_a_server_that_heeds_nothing_is_killed_when_the_fleet_ends(tmp_path: Path) -> None:
    script = "rules: [{when: {last: user}, call: [{tool: stays__here}]}, {say: fine}]"
    servers = {"mcp": {"servers": {"stays": {"command": "python", "args": ["stays.py"]}}}}
    root = offline_project(
        tmp_path / "p",
        {"one": agent_module("one", ("stays",))},
        script,
        top={"bind": "127.0.0.1"},
        config=servers,
        files={"stays.py": STAYS},
    )
    with served(root, truly=True) as fleet:
        await fleet.says("] running")
        async with fleet.client("one", ERAS[0]) as client:
            assert text_of(await client.call_tool("send_message", {"message": "hi"})) == "fine"
        pid = int((root / "pid").read_text("utf-8"))
        await ends_cleanly(fleet, signal.SIGTERM)
        await until(lambda: gone(pid))


async def test_a_second_signal_during_the_start_leaves_no_process_behind(tmp_path: Path) -> None:
    root = hung_project(tmp_path)
    with served(root, truly=True) as fleet:
        pid = int(await until((root / "hanging").read_text, timeout=60))
        fleet.send(signal.SIGTERM)
        await fleet.says("] draining")
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() in (143, 0)  # 0 when it was quicker than the second
        await until(lambda: gone(pid))


@pytest.mark.slow
async def test_it_ends_while_a_program_of_the_project_starts(tmp_path: Path) -> None:
    program = {"command": [sys.executable, "hangs.py"], "url": "http://127.0.0.1:9/mcp"}
    root = write_project(
        tmp_path / "p",
        {"one": None},
        top={"bind": "127.0.0.1", "servers": {"hung": program}},
        files={"hangs.py": HANGS},
    )
    with served(root) as fleet:
        pid = int(await until((root / "hanging").read_text, timeout=60))
        await ends_cleanly(fleet, signal.SIGTERM)
        await until(lambda: gone(pid))


@pytest.mark.slow
async def test_it_ends_as_soon_as_it_listens_to_signals_at_all(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root, truly=True) as fleet:
        status = Path(f"/proc/{fleet.process.pid}/status")

        def caught() -> bool:  # the mask of signals that have a handler
            mask = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt:"))
            return bool(int(mask.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

        await until(caught)
        await ends_cleanly(fleet, signal.SIGTERM)
        assert fleet.err == []


@pytest.mark.slow
async def test_an_agent_whose_code_blocks_the_end_is_ended_by_force_and_that_is_told(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user}
    call: [{tool: ponder, arguments: {}}]
"""
    root = offline_project(tmp_path / "p", {"slow": BLOCKS}, script, top={"drain_timeout": 0.5})
    with served(root, constants={"pallas.cli.served_fleet.PATIENCE": 1.0}) as fleet:
        await fleet.says("] running")
        writer = await raw_client.call(fleet.url("slow"), ERAS[0], "block")
        await fleet.says("slow blocks the event loop of all agents at agents/slow.py")
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 1
        await fleet.says("the fleet did not stop: an agent's code blocks it; ended by force, 1 of its runs")
        await fleet.logs("the fleet did not stop")
        writer.transport.abort()


@pytest.mark.slow
async def test_hangup_reloads_the_configuration_and_drops_nothing(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user, text: hold}
    call: [{tool: stile__go, arguments: {who: "{{ last }}"}}]
  - when: {last: tool}
    say: "{{ result }}"
  - say: ok
"""
    async with turnstile() as stile:
        root = offline_project(
            tmp_path / "p",
            {"one": agent_module("one", ("stile",))},
            script,
            top={"bind": "127.0.0.1"},
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        module = root / "agents" / "one.py"
        with served(root) as fleet:
            await fleet.says("] running")
            async with fleet.client("one", ERAS[0]) as new, fleet.client("one", ERAS[1]) as old:
                callers = dict(zip(ERAS, (new, old), strict=True))
                calls = {
                    era: asyncio.create_task(one.call_tool("send_message", {"message": f"hold {era}"}))
                    for era, one in callers.items()
                }
                await until(lambda: {*stile.arrived} == {f"hold {era}" for era in ERAS})
                module.write_text(module.read_text().replace("You are one", "You are another one"))
                fleet.send(signal.SIGHUP)
                await fleet.says("one: version 2 is live")
                await fleet.says("project: reloaded")
                stile.open.set()
                for era, one in callers.items():
                    assert text_of(await calls[era]) == f"hold {era} went through"
                    assert text_of(await one.call_tool("send_message", {"message": "hi"})) == "ok", era
            broken = root / "agents.yaml"
            good = broken.read_text()
            broken.write_text(good + "nonsense: 1\n")
            fleet.send(signal.SIGHUP)
            line = await fleet.says("not reloaded")
            assert "agents.yaml:" in line
            assert "nonsense: unknown key" in line
            assert (await fleet.get("/readyz")).status_code == 200
            await fleet.logs("not reloaded")
            broken.write_text(good)
            fleet.send(signal.SIGTERM)
            assert await fleet.ended() == 0


@pytest.mark.slow
async def test_hangup_during_the_start_is_heeded_when_it_runs(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": IMPORTS.format(seconds=2)})
    with served(root) as fleet:
        await until((root / "importing").exists, timeout=60)
        fleet.send(signal.SIGHUP)
        await fleet.says("] running")
        await fleet.says("project: nothing changed")
        assert next(i for i, line in enumerate(fleet.out) if "] running" in line) < next(
            i for i, line in enumerate(fleet.out) if "nothing changed" in line
        )
        await ends_cleanly(fleet, signal.SIGTERM)


HOLDS = """
import pathlib, sys, time

class Holds:
    def find_spec(self, name, path=None, target=None):
        if name == "pallas.cli.serve":
            pathlib.Path({folder!r}, "imports").touch()
            while not pathlib.Path({folder!r}, "go").exists():
                time.sleep(0.01)

sys.meta_path.insert(0, Holds())
"""


@pytest.mark.parametrize("plain", [False, True], ids=["--serve", "bare"])
async def test_hangup_while_the_command_is_imported_does_not_end_it(tmp_path: Path, plain: bool) -> None:
    root = write_project(tmp_path / "p", {"one": None})
    (tmp_path / "sitecustomize.py").write_text(HOLDS.format(folder=str(tmp_path)))
    with served(root, plain=plain, truly=True, PYTHONPATH=str(tmp_path)) as fleet:
        await until((tmp_path / "imports").exists, timeout=60)
        fleet.send(signal.SIGHUP)
        (tmp_path / "go").touch()
        await fleet.says("] running")
        await ends_cleanly(fleet, signal.SIGTERM)


async def test_hangup_opens_the_log_anew_for_who_has_moved_it_away(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None})
    with served(root) as fleet:
        await fleet.says("] running")
        old = fleet.log.with_suffix(".1")
        fleet.log.rename(old)
        fleet.send(signal.SIGHUP)
        await fleet.logs("SIGHUP: the log goes to")
        assert "SIGHUP" not in old.read_text("utf-8")
        await ends_cleanly(fleet, signal.SIGTERM)


@pytest.mark.slow
async def test_a_hangup_and_a_save_while_it_drains_change_nothing_and_that_is_said(tmp_path: Path) -> None:
    script = """
rules:
  - when: {last: user}
    call: [{tool: stile__go, arguments: {who: one}}]
  - say: "{{ result }}"
"""
    async with turnstile() as stile:
        root = offline_project(
            tmp_path / "p",
            {"one": agent_module("one", ("stile",))},
            script,
            config={"mcp": {"servers": {"stile": {"url": stile.url}}}},
        )
        with served(root, "--watch") as fleet:
            await fleet.says("] running")
            async with fleet.client("one", ERAS[0]) as one:
                call = asyncio.create_task(one.call_tool("send_message", {"message": "hold"}))
                await until(lambda: stile.arrived)
                fleet.send(signal.SIGTERM)
                await fleet.says("draining: 1 run")
                (root / "agents" / "one.py").write_text("raise ValueError\n")
                fleet.send(signal.SIGHUP)
                await fleet.says("reload was not done: the fleet is stopping")
                async with httpx2.AsyncClient(trust_env=False, timeout=60) as http:
                    answer = await http.get(fleet.registry + "/readyz")
                assert answer.json()["status"] == "draining"
                stile.open.set()
                assert text_of(await call) == "one went through"
            assert await fleet.ended() == 0
            assert not any("reloading" in line or "ValueError" in line for line in (*fleet.out, *fleet.err))


def test_a_sighup_before_the_configuration_is_read_does_not_end_it() -> None:
    code = """
import os, signal, sys
import pallas.cli.serve as command

def serve(root):
    os.kill(os.getpid(), signal.SIGHUP)
    return 7

command.serve = serve
sys.argv = ["pallas", "--serve"]
import pallas.server
pallas.server.main()
"""
    done = subprocess.run([sys.executable, "-c", code], timeout=60, check=False)
    assert done.returncode == 7
