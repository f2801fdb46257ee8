"""Agents and programs that are down come back when what was wrong with them is saved."""

import sys
from pathlib import Path
from typing import Any

import pytest
from support.live import agent_module, ask, client, write_project
from support.mortal import Fates, mortals, moves, reaches, shown
from support.ports import free_ports
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.model import AgentState, Fault, FaultType
from pallas.model.snapshot import ServerSnapshot

PROGRAM = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
HTTPServer(("127.0.0.1", int(sys.argv[1])), BaseHTTPRequestHandler).serve_forever()
"""


def away() -> Fault:
    return Fault(FaultType.TRANSPORT, "it is away", retryable=True)


@pytest.mark.parametrize(
    ("restart", "state"),
    [
        ({"backoff": 600, "backoff_max": 600}, AgentState.BACKOFF),
        ({"backoff": 0.05, "crashes": 2, "within": 600}, AgentState.CRASH_LOOP),
    ],
)
async def test_one_that_failed_again_and_again_starts_anew_when_its_file_is_saved(
    tmp_path: Path, restart: dict[str, Any], state: AgentState
) -> None:
    root = write_project(tmp_path, {"one": None, "two": None}, keys={"one": {"restart": restart}})
    fates = Fates([away() for _ in range(5)])
    async with mortals(root, {"one": fates}, watch=True) as fleet:
        await reaches(fleet, state)
        saves = Saves(fleet, root)
        fates.starts[:] = [away()]
        mark, begun = fleet.hub.seq, fates.begun
        saves.write("agents/one.py", agent_module("one") + "# mended?\n")
        told = await saves.outcome("one", mark)
        assert (told.outcome, "it is away" in told.error) == ("failed", True)
        await until(lambda: fates.begun > begun)
        fates.starts.clear()
        mark = fleet.hub.seq
        saves.write("agents/one.py", agent_module("one") + "# mended\n")
        assert (await saves.outcome("one", mark)).outcome == "live"
        now = await reaches(fleet, AgentState.READY)
        assert (now.crashes, now.restart_at) == (0, None)
        assert AgentState.READY not in moves(fleet, "two", mark)
        assert shown(fleet, "two").restarts == 0


async def test_programs_that_are_down_start_again_when_their_file_or_entry_is_saved(tmp_path: Path) -> None:
    crashing, wrong = free_ports(2)
    restart = {"backoff": 0.05, "crashes": 2}

    def entry(port: int, **more: Any) -> dict[str, Any]:
        found = {"command": f"python servers/web.py {port}", "url": f"http://127.0.0.1:{port}/mcp"}
        return {**found, "restart": restart, **more}

    servers = {"crashing": entry(crashing), "wrong": entry(wrong, command="no-such-program-here")}
    root = write_project(
        tmp_path,
        {"one": None},
        top={"servers": servers},
        files={"servers/web.py": "from helper import X\n", "servers/helper.py": ""},
    )
    async with mortals(root, {}, watch=True) as fleet:
        saves = Saves(fleet, root)

        def program(name: str) -> ServerSnapshot:
            return next(each for each in fleet.snapshot().servers if each.name == name)

        await until(lambda: program("crashing").state is AgentState.CRASH_LOOP)
        assert program("wrong").state is AgentState.ERROR
        saves.write("servers/web.py", "from helper import X\n" + PROGRAM)
        await until(lambda: program("crashing").state is AgentState.CRASH_LOOP)
        saves.write("servers/helper.py", "X = 1\n")  # a file that only the program reads
        await until(lambda: program("crashing").state is AgentState.READY)
        pid = program("crashing").pid
        assert (program("crashing").crashes, program("crashing").error) == (0, "")

        def mend(content: dict[str, Any]) -> None:
            content["servers"]["wrong"] = entry(wrong)

        saves.edit("agents.yaml", mend)
        await until(lambda: program("wrong").state is AgentState.READY)
        assert program("crashing").pid == pid
        assert shown(fleet).restarts == 0


@pytest.mark.slow
async def test_a_module_that_did_not_import_at_the_start_is_mended_by_saving_it(tmp_path: Path) -> None:
    broken = "import nothing_of_that_name\n" + module("one", "Apple.")
    async with watched(
        tmp_path,
        {
            "one": broken,
            "two": "def main(:\n",
            "three": "import sys\nsys.exit(3)\n",
            "four": module("four", "Apple."),
        },
        saying("Apple.", "Birch."),
        probe=False,
    ) as saves:
        down = {each.name for each in saves.fleet.snapshot().agents if each.state is AgentState.ERROR}
        assert down == {"one", "two", "three"}
        for name in sorted(down):
            async with client(saves.fleet, name) as caller:  # connected while it is down, and after that
                mark = saves.fleet.hub.seq
                saves.write(f"agents/{name}.py", broken + "# still\n")
                told = await saves.outcome(name, mark)
                assert (told.outcome, told.place) == ("failed", f"agents/{name}.py:1")
                mark = saves.fleet.hub.seq
                saves.write(f"agents/{name}.py", module(name, "Birch."))
                told = await saves.outcome(name, mark)
                assert (told.outcome, told.version) == ("live", 1)
                assert await ask(caller, "hello") == "Birch. 1"
        assert saves.versions()["four"] == 1
    assert "nothing_of_that_name" not in sys.modules
