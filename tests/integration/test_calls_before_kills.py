"""A fleet that is killed at any call of a tool has stored that call before: no call left that it lacks."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest
from support.live import agent_module
from support.offline import offline_project
from support.served import Served, served
from support.surfaces import rest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

KILLS = int(os.environ.get("PALLAS_KILLS", "100"))
"""Kills, each at another call: half of them when it arrives, half when it has been made."""
PROJECTS = 3
"""Fleets that are killed side by side, each of a project of its own."""
CHATS = 3
"""Questions that are asked at once; each leads to two calls at once and then to a third."""
SERVER = '''
import fcntl
import json
import os
import signal
from pathlib import Path
from stdio_server import StdioServer

server = StdioServer("shelf")
here = Path("HERE")


def kill(lines: int, late: bool) -> None:
    kills = json.loads((here / "kill").read_text()) if (here / "kill").exists() else None
    if kills and lines >= kills["at"] and kills["late"] == late:
        os.kill(kills["pid"], signal.SIGKILL)


@server.tool()
def note(text: str) -> str:
    """Write a note."""
    with (here / "effects").open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text + "\\n")
        file.flush()
        file.seek(0)
        lines = len(file.read().splitlines())
        kill(lines, False)
    kill(lines, True)
    return f"noted {text}"


server.run()
'''
SCRIPT = """
rules:
  - when: {last: tool, text: "again/"}
    say: "done"
  - when: {last: tool}
    call: [{tool: shelf__note, arguments: {text: "again/{{ result }}"}}]
  - when: {last: user}
    call:
      - {tool: shelf__note, arguments: {text: "{{ last }}/a"}}
      - {tool: shelf__note, arguments: {text: "{{ last }}/b"}}
"""


def project(root: Path, database: Path, isolation: str) -> Path:
    """A project whose agent calls a server that writes down each call, and kills the fleet at one."""
    return offline_project(
        root,
        {"clerk": agent_module("clerk", ("shelf",))},
        SCRIPT,
        keys={"clerk": {"isolation": isolation}},
        top={"bind": "127.0.0.1", "database_url": f"sqlite:///{database}"},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER.replace("HERE", str(root))},
    )


def effects(root: Path) -> list[str]:
    """The calls that the server has seen."""
    file = root / "effects"
    return file.read_text().splitlines() if file.exists() else []


def lacking(database: Path, calls: Iterable[str]) -> list[str]:
    """Those of these calls that no message of the ledger has."""
    with closing(sqlite3.connect(database)) as ledger:
        rows = ledger.execute("SELECT tool_calls, native FROM messages WHERE role = 'assistant'").fetchall()
    stored = "\n".join(f"{made}{native}" for made, native in rows)
    return [each for each in calls if json.dumps(each)[1:-1] not in stored]


async def killed(fleet: Served, number: int) -> None:
    """Ask several questions at once until the fleet is killed at its call of that number."""
    at = len(effects(fleet.root)) + 1 + number // 2 % (2 * CHATS)
    kill = fleet.root / "kill"
    kill.with_suffix(".new").write_text(
        json.dumps({"pid": fleet.process.pid, "at": at, "late": number % 2 == 1})
    )
    kill.with_suffix(".new").rename(kill)

    async def ask(chat: int) -> None:
        with suppress(httpx2.HTTPError):  # the fleet ends
            async with rest(fleet) as http:
                await http.post("/agents/clerk/chat", json={"message": f"life {number} chat {chat}"})

    await asyncio.gather(*map(ask, range(CHATS)))
    assert await fleet.ended() == -9
    kill.unlink()


async def lives(root: Path, isolation: str, numbers: Iterable[int]) -> int:
    """Kill a fleet at each of these calls, and look after each what its ledger lacks; returns how many."""
    database = root.with_suffix(".sqlite3")
    project(root, database, isolation)
    count = 0
    for number in numbers:
        with served(root) as fleet:
            await fleet.says("] running")
            await killed(fleet, number)
        assert lacking(database, effects(root)) == [], number
        count += 1
    assert len(effects(root)) >= count
    assert lacking(database, [f"life {number} chat 0/z"]) == [f"life {number} chat 0/z"]
    return count


@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_each_call_that_a_server_saw_is_in_the_ledger(tmp_path: Path, isolation: str) -> None:
    kills = KILLS if isolation == "none" else KILLS // 10
    async with asyncio.TaskGroup() as group:
        projects = [
            group.create_task(lives(tmp_path / f"p{first}", isolation, range(first, kills, PROJECTS)))
            for first in range(PROJECTS)
        ]
    assert sum(each.result() for each in projects) == kills
