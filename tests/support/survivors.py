"""Projects whose agent calls tools with recorded side effects, to be killed in the middle."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pallas.ledger import Ledger, open_ledger
from pallas.model import RunRecord

from .live import agent_module
from .offline import offline_project
from .waiting import until

TOLD = "outcome unknown: the call was begun before a restart and its answer was lost"
SERVER = '''
import os
import time
from pathlib import Path
from stdio_server import StdioServer

server = StdioServer("shelf")
here = Path("HERE")


def record(line: str) -> None:
    with (here / "effects").open("a") as file:
        file.write(line + "\\n")


@server.tool()
def note(text: str) -> str:
    """Write a note."""
    record(f"note {text}")
    return f"noted {text}"


@server.tool()
def wait(text: str) -> str:
    """Come back when the door is open."""
    (here / "caller").write_text(str(os.getppid()))
    record(f"wait {text}")
    while not (here / "door").exists():
        time.sleep(0.01)
    return f"waited {text}"


server.run()
'''
# A note, then a tool that waits for the door, then a word.
SCRIPT = """
rules:
  - when: {last: user, text: both}
    call:
      - {tool: shelf__note, arguments: {text: "both"}}
      - {tool: shelf__wait, arguments: {text: "both"}}
  - when: {last: user, text: tell}
    say: "One moment."
    call: [{tool: shelf__wait, arguments: {text: "b"}}]
  - when: {last: user, text: have it done}
    call: [{tool: clerk, arguments: {message: "work"}}]
  - when: {last: user, text: work}
    call: [{tool: shelf__note, arguments: {text: "a"}}]
  - when: {last: tool, text: "noted a"}
    call: [{tool: shelf__wait, arguments: {text: "b"}}]
  - when: {last: tool, text: outcome unknown}
    say: "I do not know whether it was done"
  - when: {last: tool}
    say: "done: {{ result }}"
  - when: {last: user}
    say: "turn {{ turns }}"
"""


def project(
    root: Path,
    database: str,
    *,
    top: Mapping[str, Any] | None = None,
    here: Path | None = None,
    lead: Mapping[str, Any] | None = None,
    **keys: Any,
) -> Path:
    """A project with the agent ``clerk``; ``keys`` are added to its entry, ``top`` to agents.yaml.

    With the keys ``lead`` there is an agent of that name above it, a model whose peer it is if they name no
    kind. The effects and the door
    of the clerk's tools are in the folder ``here``, without one in the project.
    """
    agents: dict[str, str | None] = {"clerk": agent_module("clerk", ("shelf",))}
    of_agents: dict[str, Mapping[str, Any]] = {"clerk": keys}
    if lead is not None:
        agents["lead"] = None if "kind" in lead else agent_module("lead")
        of_agents["lead"] = {"module": None, **lead} if "kind" in lead else {"peers": ["clerk"], **lead}
    return offline_project(
        root,
        agents,
        SCRIPT,
        keys={name: each for name, each in of_agents.items() if each} or None,
        top={"bind": "127.0.0.1", "database_url": database, **(top or {})},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER.replace("HERE", str(here or root))},
    )


def effects(root: Path) -> list[str]:
    """What the tools did so far."""
    file = root / "effects"
    return file.read_text("utf-8").splitlines() if file.exists() else []


async def ended_run(database: str, number: int = 0, timeout: float = 60.0) -> tuple[RunRecord, list[str]]:
    """The run that began so many runs ago, once it is over, and ``role: text`` of the rows of its thread."""
    ledger = await open_ledger(database)

    async def over() -> RunRecord | None:
        run = (await ledger.runs.list()).items[number]
        return run if run.status != "running" else None

    try:
        run: RunRecord = await until(over, timeout=timeout)
        return run, await rows(ledger, run.thread)
    finally:
        await ledger.close()


async def rows(ledger: Ledger, thread: str) -> list[str]:
    """The rows of a thread as ``role status: text``."""
    page = await ledger.threads.messages(thread, limit=200)
    return [f"{row.role} {row.status}: {row.content}" for row in page.items]
