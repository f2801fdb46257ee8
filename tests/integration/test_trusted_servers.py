"""What servers say of their tools counts only for those that the project trusts, once a call was lost."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.served import Served, served
from support.survivors import TOLD, effects, ended_run
from support.waiting import until

SERVER = '''
import sys
import time
from pathlib import Path
from stdio_server import StdioServer

name = sys.argv[1]
server = StdioServer(name)
here = Path("HERE")


def add(tool: str, **hints: bool) -> None:
    def wait() -> str:
        """Come back when the door is open."""
        with (here / "effects").open("a") as file:
            file.write(f"{name} {tool}\\n")
        while not (here / "door").exists():
            time.sleep(0.01)
        return f"{name} {tool} is done"

    server.add_tool(wait, name=tool, annotations=hints)


add("look", readOnlyHint=True)
add("put", idempotentHint=True)
add("pay", readOnlyHint=False, idempotentHint=False)
server.run()
'''
CALLS = [f"{server} {tool}" for server in ("shelf", "stranger") for tool in ("look", "put", "pay")]
SCRIPT = f"""
rules:
  - when: {{last: user}}
    call: [{", ".join(f"{{tool: {each.replace(' ', '__')}, arguments: {{}}}}" for each in CALLS)}]
  - when: {{last: tool}}
    say: "done"
"""


async def asked(fleet: Served) -> None:
    """Ask the clerk, until its fleet is gone."""
    with suppress(Exception):  # the connection breaks
        async with fleet.client("clerk", ERAS[0]) as clerk:
            await clerk.call_tool("send_message", {"message": "work", "conversation_id": "a thread of mine"})


@pytest.mark.slow
async def test_hints_count_as_repeat_only_for_trusted_servers(tmp_path: Path) -> None:
    url, root = f"sqlite:///{tmp_path}/ledger.sqlite3", tmp_path / "p"
    offline_project(
        root,
        {"clerk": agent_module("clerk", ("shelf", "stranger"))},
        SCRIPT,
        top={
            "bind": "127.0.0.1",
            "database_url": url,
            "trusted_servers": ["shelf"],
            "unfinished_calls": {"agent:*": "fail"},  # says nothing of tools
        },
        config={
            "mcp": {
                "servers": {
                    name: {"command": "python", "args": ["waits.py", name]} for name in ("shelf", "stranger")
                }
            }
        },
        files={"waits.py": SERVER.replace("HERE", str(root))},
    )
    with served(root) as fleet:
        await fleet.logs("clerk: ready")
        asking = asyncio.create_task(asked(fleet))
        await until(lambda: sorted(effects(root)) == sorted(CALLS), timeout=60)
        fleet.send(signal.SIGKILL)
        await fleet.ended()
        await asking
    (root / "door").touch()
    with served(root):
        run, said = await ended_run(url)
    assert (run.status, run.attempt) == ("ok", 2)
    assert sorted(effects(root)[len(CALLS) :]) == ["shelf look", "shelf put"]
    assert [TOLD in row for row in said[2:-1]] == [False, False, *[True] * 4]
    assert ["is done" in row for row in said[2:-1]] == [True, True, *[False] * 4]
