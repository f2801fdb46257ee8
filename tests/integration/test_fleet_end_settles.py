"""What the end of a fleet leaves of a run that came over REST: who asked is told, and its rows are over."""

from pathlib import Path

import httpx2
import pytest
from support.live import agent_module, all_ready, running
from support.offline import offline_project
from support.rest import chunks_in
from support.waiting import until

from pallas.ledger import open_ledger
from pallas.ledger.claims import Estate

SCRIPT = """
rules:
  - when: {last: user}
    say: "One moment."
    call: [{tool: echo__slow, arguments: {text: "x"}}]
"""


@pytest.mark.slow
async def test_a_run_that_the_end_of_the_fleet_cuts_is_told_and_kept(tmp_path: Path) -> None:
    # AG-5
    root = offline_project(tmp_path / "p", {"boss": agent_module("boss", ("echo",))}, SCRIPT)
    url = f"sqlite:///{tmp_path}/ledger.sqlite3"
    async with running(root, database=url) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        base = f"{fleet.ports.origin}/api/v1"
        async with (
            httpx2.AsyncClient(base_url=base, trust_env=False, timeout=60) as api,
            api.stream("POST", "/agents/boss/chat", json={"message": "go", "stream": True}) as answer,
        ):
            body, thread = b"", answer.headers["pallas-thread-id"]
            stopped = False
            async for piece in answer.aiter_bytes():
                body += piece
                if b"tool_call" in body and not stopped:
                    stopped = True
                    await fleet.stop()
    last = chunks_in(body)[-1]
    assert last["type"] == "error"
    assert "the fleet is stopping" in last["message"]

    ledger = await open_ledger(url)
    try:
        assert await ledger.inherit(lambda agent: True) == Estate()
        (run,) = (await ledger.runs.list()).items
        assert (run.status, run.partial) == ("cancelled", "One moment.")
        rows = (await ledger.threads.messages(thread)).items
        assert [(row.role, row.status) for row in rows] == [
            ("user", "complete"),
            ("assistant", "error"),
            ("assistant", "complete"),
        ]
        assert rows[-1].content == "One moment.\n\n[cut short: the fleet is stopping]"
    finally:
        await ledger.close()
