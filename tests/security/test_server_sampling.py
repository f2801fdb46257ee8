"""``sampling/createMessage``: off unless a server's entry allows it, counted, limited and logged."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from support.curious_server import COMMAND
from support.live import ERAS, agent_module, client, running, write_project
from support.scripted import Model, model
from support.served import text_of
from support.waiting import until

from pallas.executors.remote.turn_arguments import META
from pallas.fleet.fleet import Fleet
from pallas.scripted.scripted_conversation import read_conversation
from pallas.telemetry.log import close_logging, setup_logging

SCRIPT = """
rules:
  - {when: {last: user, text: think for me}, say: "thought"}
  - {when: {last: user, text: older}, call: [{tool: older__ask, arguments: ARGUMENTS}]}
  - {when: {last: user, text: newer}, call: [{tool: newer__ask, arguments: ARGUMENTS}]}
  - {when: {last: user, text: declares}, call: [{tool: older__capabilities}, {tool: newer__capabilities}]}
  - {when: {last: tool}, say: "{{ result }}"}
"""
THINK = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "Think for me."}}],
    "maxTokens": 1_000_000,
}


@asynccontextmanager
async def curious(
    folder: Path, *, sampling: dict[str, Any] | None, script: str = SCRIPT, **more: Any
) -> AsyncIterator[tuple[Fleet, Model]]:
    """A fleet whose agent calls a curious server of each protocol version, and the model that it asks."""
    arguments = json.dumps({"method": "sampling/createMessage", "params": THINK, **more})
    entry = {"command": sys.executable, "args": [COMMAND], "sampling": sampling}
    async with model(folder, script.replace("ARGUMENTS", arguments)) as asked:
        config = {
            "default_model": "generic.scripted",
            "generic": {"base_url": asked.url, "api_key": "offline"},
            "mcp": {
                "servers": {
                    "older": {**entry, "protocol_mode": "legacy"},
                    "newer": {**entry, "protocol_mode": "modern"},
                }
            },
        }
        root = write_project(
            folder / "project", {"desk": agent_module("desk", ("older", "newer"))}, config=config
        )
        async with running(root) as fleet:
            yield fleet, asked


LATE = """
rules:
  - {when: {last: user, text: think for me}, say: "thought", delay: 300}
  - {when: {last: user}, call: [{tool: older__ask, arguments: ARGUMENTS}]}
  - {when: {last: tool}, say: "{{ result }}", delay: 1}
"""


async def told(desk: Client, server: str) -> tuple[str, dict[str, Any]]:
    """What the agent says after it called a server, and the metadata of its result."""
    result = await desk.call_tool("send_message", {"message": server})
    return text_of(result), dict(result.meta or {})


def thoughts(asked: Model) -> int:
    """How often the model was asked what a server wanted to know."""
    return sum(is_thought(body) for body in asked.record.requests)


def is_thought(body: Any) -> bool:
    """Whether the model was asked this by a server."""
    return "Think for me" in json.dumps(body["messages"][-1])


def prompt_tokens(asked: Model, since: int) -> int:
    """What the offline model counts for everything it was asked after ``since`` requests."""
    bodies = asked.record.requests[since:]
    return sum(-(-read_conversation(body).characters // 4) for body in bodies)


async def test_a_server_uses_no_model_unless_its_entry_allows_it(tmp_path: Path) -> None:
    async with curious(tmp_path, sampling=None, times=3) as (fleet, asked):
        for era in ERAS:
            async with client(fleet, "desk", era=era) as desk:
                for server in ("older", "newer"):
                    said, _ = await told(desk, server)
                    assert "thought" not in said
                declared, _ = await told(desk, "declares")
                assert "sampling" not in declared
                assert "roots" not in declared
    assert thoughts(asked) == 0


@pytest.mark.slow
async def test_what_a_server_asks_is_counted_limited_and_logged(tmp_path: Path) -> None:
    close_logging()
    log = setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    try:
        limits = {"max_requests": 3, "max_tokens": 50}
        async with curious(tmp_path, sampling=limits, times=8) as (fleet, asked):
            for era in ERAS:
                async with client(fleet, "desk", era=era) as desk:
                    before = len(asked.record.requests)
                    said, meta = await told(desk, "older")
                    answers = json.loads(said)
                    assert [each["content"]["text"] for each in answers[:3]] == ["thought"] * 3
                    assert all("used its 3 sampling requests" in json.dumps(each) for each in answers[3:])
                    assert sum(map(is_thought, asked.record.requests[before:])) == 3
                    assert meta[f"{META}/usage"]["inputTokens"] == prompt_tokens(asked, before)
                    before = len(asked.record.requests)
                    said, _ = await told(desk, "newer")  # asks for all at once, and the fourth is refused
                    assert "used its 3 sampling requests" in said
                    assert sum(map(is_thought, asked.record.requests[before:])) <= 3
    finally:
        close_logging()
    assert {body["max_tokens"] for body in asked.record.requests if is_thought(body)} == {50}
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    lines = [each["message"] for each in records if "sampling request" in each["message"]]
    assert any("older" in each and "(3 of 3 in this run)" in each for each in lines)
    # One line for the refusals of a run, however many there are.
    assert sum("was refused" in each for each in lines) == 4


@pytest.mark.slow
async def test_nothing_is_asked_of_a_model_for_a_run_that_is_over(tmp_path: Path) -> None:
    # The first answer of the server is empty; it asks after that, and the model takes minutes.
    async with (
        curious(tmp_path, sampling={}, script=LATE, late=True) as (fleet, asked),
        client(fleet, "desk") as desk,
    ):
        said, _ = await told(desk, "go")
        assert said == "[]"
        assert thoughts(asked) == 1
        await until(lambda: asked.record.active == 0)
        said, _ = await told(desk, "again")
        assert "the run that called this server is over" in said
