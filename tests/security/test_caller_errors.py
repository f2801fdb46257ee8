"""Callers are told no class, file, traceback or words of a program; operators get all of it."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from support.live import ERAS, client, module_fleet
from support.typed import typed_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import AgentState, RunFinished

pytestmark = [pytest.mark.usefixtures("forked_children"), pytest.mark.asyncio(loop_scope="module")]
HIDDEN = re.compile(
    r"\w+Error\b|\w+Exception\b|Traceback|\.py\b|line \d|swordfish|/opt/|licence|stderr|SystemExit|\bexit\("
)
DESK = """
    import sys
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, Text

    @dataclass
    class Ask:
        what: str

    async def typed(payload, metadata):
        if payload.what == "exit":
            sys.exit("swordfish")
        raise ValueError("swordfish in /opt/licence")

    apart = typed

    async def strays(payload, metadata):
        return HandlerResponse(Ask(payload.what), to="apart")

    async def calls(payload, metadata):
        return HandlerResponse(Ask(payload.what), to="typed")

    async def plain(request):
        raise KeyError("swordfish")
"""
WORKER = """
    import json
    import sys

    for line in sys.stdin:
        asked = json.loads(line)
        if asked.get("method") == "prompt" or "prompt" in asked.get("method", ""):
            print("Traceback: no licence in /opt/swordfish", file=sys.stderr, flush=True)
            sys.exit(3)
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": {"sessionId": "s"}}), flush=True)
"""
AT_ONCE = """
    import sys

    sys.exit("no licence in /opt/swordfish")
"""
ENTRIES: dict[str, dict[str, Any]] = {
    "typed": {"payload": "Ask"},
    "apart": {"payload": "Ask", "isolation": "process"},
    "strays": {"payload": "Ask"},
    "calls": {"payload": "Ask", "peers": ["typed"]},
    "plain": {"kind": "handler", "handler": "desk:plain", "depends_on": ["missing"]},
    "missing": {"payload": "Ask", "handler": "lost:typed"},
    "worker": {"kind": "worker", "command": [sys.executable, "worker.py"], "dialect": "ndjson"},
    "never": {
        "kind": "worker",
        "command": [sys.executable, "at_once.py"],
        "dialect": "ndjson",
        "restart": {"policy": "never"},
    },
    "model": {"module": "broken"},
    "far": {"module": "broken", "isolation": "process"},
}
CAUSES = {
    "typed": "ValueError: swordfish in /opt/licence at desk.py:14",
    "apart": "ValueError: swordfish in /opt/licence at desk.py:14",
    "strays": "its message to apart was refused: it is not among its peers; then AttributeError",
    "calls": "ValueError: swordfish in /opt/licence",
    "plain": "KeyError: 'swordfish' at desk.py:25",
    "worker": "no licence in /opt/swordfish",
}


@module_fleet()
def fleet(folder: Path) -> Path:
    files = {
        "lost.py": "raise RuntimeError('swordfish in /opt/licence')",
        "broken.py": "import nothing_of_that_name",
        "worker.py": WORKER,
        "at_once.py": AT_ONCE,
    }
    return typed_project(folder, DESK, ENTRIES, files=files)


async def told(fleet: Fleet, agent: str, tool: str, era: str, what: str = "go") -> str:
    message = {"message": json.dumps({"what": what})} if tool == "send_message" else {}
    async with client(fleet, agent, era=era) as caller:
        result: Any = await caller.call_tool(tool, message)
    assert result.is_error == (tool == "send_message"), result
    return str(result.model_dump_json())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("agent", sorted(ENTRIES))
async def test_a_caller_learns_neither_code_nor_files_nor_words_of_programs(
    fleet: Fleet, agent: str, era: str
) -> None:
    # HC-22, DR-28
    for tool in ("send_message", "get_health"):
        text = await told(fleet, agent, tool, era)
        assert not HIDDEN.search(text), text
    if agent == "plain":
        assert "needs missing: error (the log has the details)" in await told(fleet, agent, "get_health", era)
    if agent == "strays":
        text = await told(fleet, agent, "send_message", era)
        assert "strays failed: a message that it sent could not be delivered" in text
        assert "apart" not in text
    if agent in ("typed", "apart"):
        assert not HIDDEN.search(await told(fleet, agent, "send_message", era, "exit"))


async def test_the_operator_learns_the_cause(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    # HC-12, HC-22: in the log and in the event that the workbench shows
    for agent, cause in CAUSES.items():
        if agent == "worker":
            worker = next(each for each in fleet.agents if each.name == "worker")
            await until(lambda worker=worker: worker.state is AgentState.READY)
        caplog.clear()
        mark = fleet.hub.seq
        await told(fleet, agent, "send_message", ERAS[0])
        ended = [each for each in fleet.hub.since(mark).events if isinstance(each, RunFinished)]
        assert any(cause in each.cause for each in ended), (agent, ended)
        assert any(cause in record.getMessage() for record in caplog.records), agent
    reasons = {each.name: each.reason for each in fleet.agents}
    assert "RuntimeError: swordfish in /opt/licence" in reasons["missing"]
    assert "nothing_of_that_name" in reasons["model"]
    assert "nothing_of_that_name" in reasons["far"]
    assert "no licence in /opt/swordfish" in reasons["never"]
