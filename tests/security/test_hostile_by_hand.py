"""A tool of a hostile server that is called by hand costs that call alone."""

from pathlib import Path
from typing import Any

import pytest
from support import pallas_process
from support.hostile_servers import MEMORY, hostile_project

LONGEST = 60.0
CALLS = """
import asyncio, sys
from pathlib import Path
from pallas.config import load_project
from pallas.model import Fault
from pallas.toolbox.tool_call import call_tool
from pallas.toolbox.server_endpoint import downstream_endpoint

async def main():
    endpoint = downstream_endpoint(load_project(Path(sys.argv[1]), {}), "hostile")
    try:
        print((await call_tool(endpoint, sys.argv[2], {})).content)
    except Fault as fault:
        print(fault.type.value, fault.message)

asyncio.run(main())
"""
TOOLS: dict[str, Any] = {
    "pattern": {
        "schema": {"type": "object", "properties": {"v": {"pattern": "^(a+)+$"}}},
        "do": "text('x', structuredContent={'v': 'a' * 60 + '!'})",
    },
    "garbage": {"do": "while True: print('progress: 100 %')"},
    "line": {"do": "while True: sys.stdout.write('a' * 1048576)"},
    "parts": {"do": "send({'id': number, 'result': {'content': [{'type': 'text', 'text': ''}] * 5000}})"},
}


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ("pattern", "invalid structured content"),
        ("garbage", "its stdout is not JSON-RPC"),
        ("line", "more than 16 MiB"),
        ("parts", "at most 1,000 are taken"),
    ],
)
def test_a_hostile_tool_called_by_hand_fails_with_the_reason(tmp_path: Path, tool: str, says: str) -> None:
    root = hostile_project(tmp_path / "p", TOOLS)
    (tmp_path / "calls_by_hand.py").write_text(CALLS)
    done = pallas_process.run(
        *(str(root), tool),
        module="calls_by_hand",
        cwd=tmp_path,
        memory=MEMORY,
        capture_output=True,
        timeout=LONGEST,
        check=True,
        text=True,
    )
    assert done.stdout.startswith("UPSTREAM "), done.stderr
    assert says in done.stdout
