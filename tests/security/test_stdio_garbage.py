"""What a stdio server writes that is no message is counted, not logged line by line, and ends the server."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support.hostile_servers import MEMORY, call, hostile_project
from support.live import ERAS
from support.served import fault_in, served, text_of

LONGEST = 60.0
ENDLESS: dict[str, Any] = {
    "words": {"do": "while True: print('progress: 100 %')"},
    "objects": {"do": 'while True: print(\'{"jsonrpc": "2.0", "what": 1}\')'},
    "bytes": {"do": "while True: sys.stdout.buffer.write(bytes(range(128, 256)) + b'\\n')"},
}
FEW: dict[str, Any] = {
    "few": {"do": "print('a banner'); print(); sys.stdout.buffer.write(b'\\xff\\n'); text('few: done')"}
}
MOST_LOG = 300_000
"""Bytes of log for six servers that were ended; a traceback for each line makes it endless."""


@pytest.mark.slow
async def test_garbage_ends_the_server_and_the_call_and_is_told_once(tmp_path: Path) -> None:
    root = hostile_project(tmp_path / "p", {**ENDLESS, **FEW})
    with served(root, memory=MEMORY) as fleet:
        await fleet.says("] running")
        for era in ERAS:
            async with asyncio.timeout(LONGEST), fleet.client("victim", era) as victim:
                for tool in ENDLESS:
                    said = text_of(await victim.call_tool("send_message", {"message": call(tool)}))
                    assert "server hostile was ended: its stdout is not JSON-RPC" in said, tool
                    # The server is started again: the next call works.
                    said = text_of(await victim.call_tool("send_message", {"message": call("few")}))
                    assert "few: done" in said
        log = fleet.log.read_text("utf-8")
    assert log.count("wrote a line on its stdout that is not a JSON-RPC message") <= 3 * 2 * 2 * len(ERAS)
    assert "Traceback" not in "".join(
        line for line in log.splitlines() if "parse" in line.lower() or "Garbage" in line
    )
    assert len(log) < MOST_LOG


@pytest.mark.slow
async def test_a_server_that_only_writes_garbage_is_reported_with_its_words(tmp_path: Path) -> None:
    root = hostile_project(tmp_path / "p", {"": {"do": "while True: print('Traceback: no such module')"}})
    with served(root, memory=MEMORY) as fleet:
        await fleet.logs("server hostile was ended: its stdout is not JSON-RPC")
        await fleet.says("] running")
        async with asyncio.timeout(LONGEST), fleet.client("victim", ERAS[0]) as victim:
            result = await victim.call_tool("send_message", {"message": "hi"})
            health = text_of(await victim.call_tool("get_health", {}))
        assert text_of(result) == "hi"
        assert result.meta is not None
        missing = result.meta["local.pallas/missingServers"]["hostile"]
        assert "its stdout is not JSON-RPC" in missing
        # The words are the operator's.
        assert "no such module" not in missing
        await fleet.logs("not a JSON-RPC message: Traceback: no such module")
        assert "hostile" in health
        async with asyncio.timeout(LONGEST), fleet.client("other", ERAS[0]) as other:
            assert text_of(await other.call_tool("send_message", {"message": "hi"})) == "hi"
        assert fleet.log.stat().st_size < MOST_LOG


@pytest.mark.slow
async def test_an_agent_that_needs_such_a_server_says_why_it_does_not_answer(tmp_path: Path) -> None:
    root = hostile_project(
        tmp_path / "p",
        {"": {"do": "while True: print('Traceback: no such module')"}},
        keys={"victim": {"servers": {"hostile": {"required": True}}}},
    )
    with served(root, memory=MEMORY) as fleet:
        await fleet.logs("server hostile was ended: its stdout is not JSON-RPC")
        await fleet.says("] running")
        for era in ERAS:
            async with asyncio.timeout(LONGEST), fleet.client("victim", era) as victim:
                result = await victim.call_tool("send_message", {"message": "hi"})
            assert fault_in(result)["data"]["type"] == "UPSTREAM"
            assert "its stdout is not JSON-RPC" in fault_in(result)["error"]
