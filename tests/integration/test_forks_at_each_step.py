"""A run of fifty steps goes on from each of them: what was before is not done again, and is what was sent."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.live import agent_module, all_ready, running
from support.offline import model_record, offline_project
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.model import NO_PARAMS, Recording, RunRequest
from pallas.recordings.fork_point import forked_request
from pallas.runs.run_recording import portable_recording

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_200)]

CALLS = 25
SERVER = '''
import re
from pathlib import Path
from stdio_server import StdioServer

server = StdioServer("shelf")


@server.tool()
def count(text: str) -> str:
    """The number after the one in a text."""
    number = int(re.search("[0-9]+", text)[0]) + 1
    with Path("executed").open("a") as file:
        file.write(f"{number}\\n")
    return f"number {number}."


server.run()
'''
SCRIPT = f"""
rules:
  - when: {{last: tool, text: "number {CALLS}."}}
    say: "counted"
  - when: {{last: tool}}
    call: [{{tool: shelf__count, arguments: {{text: "{{{{ result }}}}"}}}}]
  - when: {{last: user}}
    call: [{{tool: shelf__count, arguments: {{text: "from 0"}}}}]
"""


def executed(root: Path) -> list[str]:
    """The numbers that the server has counted to."""
    return (root / "executed").read_text().split()


async def recorded(fleet: Fleet, request: RunRequest) -> Recording:
    """The recording of a run."""
    await fleet.kernel.run(request)
    assert fleet.ledger is not None
    return await portable_recording(fleet.kernel, fleet.ledger, fleet.project, request.run_id)


async def test_the_steps_before_are_not_done_again_and_are_what_the_model_gets(tmp_path: Path) -> None:
    root = offline_project(
        tmp_path / "p",
        {"clerk": agent_module("clerk", ("shelf",))},
        SCRIPT,
        keys={"clerk": {"max_iterations": 2 * CALLS}},
        top={"bind": "127.0.0.1"},
        config={"mcp": {"servers": {"shelf": {"command": "python", "args": ["shelf.py"]}}}},
        files={"shelf.py": SERVER},
    )
    async with running(root, database="memory") as fleet:
        await until(lambda: all_ready(fleet))
        before = await recorded(fleet, RunRequest("clerk", "Count.", run_id="first"))
        model = model_record(fleet)
        asked = list(model.requests)
        steps = [each.step for each in before.first.steps]
        assert len(steps) == 2 * CALLS + 1
        for at, step in enumerate(steps):
            calls, made = model.calls, len(executed(root))
            request = forked_request(before, step.number, params=NO_PARAMS)
            after = await recorded(fleet, replace(request, run_id=f"from-{step.number}"))
            done_again = [each.kind for each in steps[at:]]
            assert model.calls - calls == done_again.count("model"), step
            assert executed(root)[made:] == executed(root)[CALLS - done_again.count("tool") : CALLS], step
            assert after.first.answer == "counted"
            assert [each.request for each in after.first.steps[: at + 1]] == [
                each.request for each in before.first.steps[: at + 1]
            ]
            now = model.requests[-done_again.count("model")]
            assert now["messages"] == asked[-done_again.count("model")]["messages"], step
