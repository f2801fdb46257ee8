"""A fleet that is killed while agents of kinds that cannot go on in the middle answer, and started again."""

import asyncio
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from support.live import ERAS, agent_module
from support.offline import offline_project
from support.remotes import other
from support.served import Served, served
from support.survivors import SCRIPT, SERVER, effects, rows
from support.waiting import until

from pallas.ledger import open_ledger
from pallas.model import RunRecord

# Each records that it was asked, and answers when the door is open.
HANDLERS = """
import asyncio
from dataclasses import dataclass
from pathlib import Path

here = Path("HERE")


@dataclass
class Question:
    text: str


async def asked(name):
    with (here / "effects").open("a") as file:
        file.write(name + "\\n")
    while not (here / "door").exists():
        await asyncio.sleep(0.01)
    return f"{name} answers"


async def plain(request):
    return await asked("plain")


async def behind(request):
    return await asked("behind")


async def typed(payload, metadata):
    from pallas.contract import HandlerResponse, Text

    return HandlerResponse.respond(Text(await asked("typed")))
"""
WORKER = """
import json
import sys
import time
from pathlib import Path

here = Path("HERE")
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = {"sessionId": "s1"}
    if message["method"] == "session/prompt":
        with (here / "effects").open("a") as file:
            file.write("coder\\n")
        while not (here / "door").exists():
            time.sleep(0.01)
        result = {"text": "coder answers", "stopReason": "end_turn"}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
CHAIN = """
from fast_agent import FastAgent

fast = FastAgent("line")


@fast.agent(name="first", instruction="You are the first.", servers=["shelf"])
@fast.agent(name="second", instruction="You are the second.")
@fast.chain(name="line", sequence=["first", "second"], default=True)
async def main() -> None: ...
"""
PARALLEL = """
from fast_agent import FastAgent

fast = FastAgent("fan")


@fast.agent(name="left", instruction="You are on the left.", servers=["shelf"])
@fast.parallel(name="fan", fan_out=["left"], default=True)
async def main() -> None: ...
"""
ALL = {"coder", "far", "line", "fan", "plain", "typed", "front"}
ASKED = ["behind", "coder", "note a", "note a", "plain", "typed", "wait b", "wait b"]
QUESTION = "work and wait"


def project(root: Path, url: str, far: str, rules: str) -> Path:
    """One agent of each kind, none of which can go on in the middle; ``front`` is a router to ``behind``.

    ``rules`` says where ``repeat`` is written: at the ``top``, in each entry (``own``), or nowhere.
    """
    keys: dict[str, dict[str, Any]] = {
        "coder": {"kind": "worker", "command": ["python", "coder.py"]},
        "far": {"kind": "remote", "url": far},
        "plain": {"kind": "handler", "handler": "handlers:plain"},
        "behind": {"kind": "handler", "handler": "handlers:behind"},
        "typed": {"kind": "handler", "handler": "handlers:typed", "payload": "handlers:Question"},
        "front": {"kind": "router", "agents": ["behind"], "fallback": "behind"},
    }
    top = {"unfinished_calls": {"agent:*": "repeat"}} if rules == "top" else {}
    if rules == "own":
        for name in ("line", "fan", *keys):
            if name != "front":  # the rule is that of the agent which it chooses
                keys.setdefault(name, {})["unfinished_calls"] = {f"agent:{name}": "repeat"}
    shelf = {"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}}
    files = {"handlers.py": HANDLERS, "coder.py": WORKER, "shelf.py": SERVER}
    return offline_project(
        root,
        {**dict.fromkeys(keys), "line": CHAIN, "fan": PARALLEL},
        SCRIPT,
        keys={name: {"module": None, **each} if "kind" in each else each for name, each in keys.items()},
        top={"bind": "127.0.0.1", "database_url": url, **top},
        config=shelf,
        files={name: text.replace("HERE", str(root)) for name, text in files.items()},
    )


async def asked(fleet: Served, agent: str, era: str, bearer: str = "") -> None:
    """Ask until the fleet is gone."""
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    arguments = {"message": QUESTION, "conversation_id": f"of {agent}{bearer}"}
    with suppress(Exception):  # the connection breaks
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(fleet.url(agent), http_client=http), mode=era) as one,
        ):
            await one.call_tool("send_message", arguments)


async def ended(url: str) -> list[tuple[RunRecord, list[str]]]:
    """The runs of conversations once they are over, with the rows of their threads."""
    ledger = await open_ledger(url)

    async def all_over() -> list[RunRecord]:
        runs = [run for run in (await ledger.runs.list()).items if run.thread]
        return runs if all(run.status != "running" for run in runs) else []

    try:
        runs = await until(all_over, timeout=60)
        return [(run, await rows(ledger, run.thread)) for run in runs]
    finally:
        await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["", "top", "own"], ids=["no rule", "rule of the project", "own rule"])
async def test_an_agent_that_cannot_go_on_in_the_middle_is_asked_again_only_where_its_rule_says_so(
    tmp_path: Path, rules: str
) -> None:
    url, root = f"sqlite:///{tmp_path}/ledger.sqlite3", tmp_path / "p"
    async with other() as far:
        project(root, url, far.url, rules)
        with served(root) as fleet:
            for name in (*ALL, "behind"):
                await fleet.logs(f"{name}: ready")
            asking = [
                asyncio.create_task(asked(fleet, name, ERAS[number % 2]))
                for number, name in enumerate(sorted(ALL))
            ]
            await until(lambda: sorted(effects(root)) == ASKED and far.reached.is_set(), timeout=60)
            fleet.send(signal.SIGKILL)
            await fleet.ended()
            await asyncio.gather(*asking)
        (root / "door").touch()
        far.open.set()
        with served(root):
            found = await ended(url)
        assert sorted(run.agent for run, _ in found) == sorted(ALL)
        assert sorted(effects(root)) == sorted(ASKED * (2 if rules else 1))
        assert far.heard == [QUESTION] * (2 if rules else 1)
    for run, said in found:
        if rules:
            assert (run.status, run.attempt) == ("ok", 2), run
            assert [row.split(":")[0] for row in said] == ["user complete", "assistant complete"], run
            continue
        assert run.status == "error"
        lost = "behind" if run.agent == "front" else run.agent
        assert f"the fleet was stopped in the middle of this turn, and {lost} is not asked again" in run.fault
        assert f'write `unfinished_calls: {{"agent:{lost}": repeat}}` in agents.yaml' in run.fault
        assert {row.split(":")[0].split()[1] for row in said} == {"error"}, said


FAR_SCRIPT = """
rules:
  - when: {last: user}
    call: [{tool: distant__ask, arguments: {question: "work and wait"}}]
  - when: {last: tool}
    say: "done"
"""


@pytest.mark.slow
async def test_a_run_that_sends_its_callers_token_along_is_not_continued_and_says_why(tmp_path: Path) -> None:
    url, root = f"sqlite:///{tmp_path}/ledger.sqlite3", tmp_path / "p"
    async with other() as far:
        offline_project(
            root,
            {"clerk": agent_module("clerk", ("distant",)), "far": None, "front": None},
            FAR_SCRIPT,
            keys={
                "far": {"module": None, "kind": "remote", "url": far.url, "forward_inbound_auth": True},
                "front": {"module": None, "kind": "router", "agents": ["far"], "fallback": "far"},
            },
            top={"bind": "127.0.0.1", "database_url": url, "unfinished_calls": {"*": "repeat"}},
            config={"mcp": {"servers": {"distant": {"url": far.url, "forward_inbound_auth": True}}}},
        )
        agents = ("clerk", "far", "front")
        with served(root) as fleet:
            for name in agents:
                await fleet.logs(f"{name}: ready")
            asking = [
                asyncio.create_task(asked(fleet, name, ERAS[number % 2], bearer))
                for number, name in enumerate(agents)
                for bearer in ("", "a-token-of-its-caller")
            ]
            await until(lambda: len(far.heard) == 6, timeout=60)
            fleet.send(signal.SIGKILL)
            await fleet.ended()
            await asyncio.gather(*asking)
        far.open.set()
        before = len(far.bearers)
        with served(root):
            found = await ended(url)
        assert set(far.bearers[before:]) <= {""}
        assert len(far.heard) == 9  # of those alone whose callers sent none
    assert sorted(run.agent for run, _ in found if run.status == "ok") == ["clerk", "far", "front"]
    lost = [(run, said) for run, said in found if run.status == "error"]
    assert sorted(run.agent for run, _ in lost) == ["clerk", "far", "front"]
    for run, said in lost:
        assert "its caller's token, which it sends along, is not stored: send the message again" in run.fault
        assert {row.split(":")[0].split()[1] for row in said} == {"error"}, said
