"""What the code of agents prints is in the log, with the agent that it belongs to."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.live import ask, client, running
from support.offline import offline_project
from support.typed import typed_project
from support.waiting import until

from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.printed_lines import logging_prints

pytestmark = pytest.mark.usefixtures("forked_children")

ISOLATIONS = ("none", pytest.param("process", marks=pytest.mark.slow))
PRINTING = """
import sys
import traceback


def talk():
    print("on stdout")
    print("on stderr", file=sys.stderr)
    try:
        raise ValueError("it is made of sand")
    except ValueError:
        traceback.print_exc()
"""
DESK = """
from fast_agent import FastAgent

from printing import talk as talks

print("imported")
fast = FastAgent("desk")


def talk() -> str:
    talks()
    return "done"


@fast.agent(name="desk", instruction="You are desk.", function_tools=[talk])
async def main() -> None: ...
"""
TYPED = """
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse
    from printing import talk

    print("imported")

    @dataclass
    class Note:
        text: str

    async def desk(payload, metadata):
        talk()
        return HandlerResponse.respond(payload)
"""
SCRIPT = """
rules:
  - {when: {last: user}, call: [{tool: talk, arguments: {}}]}
  - {when: {last: tool}, say: "it said: {{ result }}"}
"""


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    yield setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("kind", ["llm", "handler"])
async def test_each_line_has_its_agent_and_a_traceback_is_one_record(
    tmp_path: Path, log_file: Path, kind: str, isolation: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if kind == "llm":
        keys = {"desk": {"isolation": isolation}}
        root = offline_project(
            tmp_path / "p", {"desk": DESK}, SCRIPT, keys=keys, files={"printing.py": PRINTING}
        )
        message = "talk"
    else:
        root = typed_project(tmp_path / "p", TYPED, {"desk": {"payload": "Note", "isolation": isolation}})
        (root / "printing.py").write_text(PRINTING)
        message = "<Note><text>x</text></Note>"

    def told() -> list[tuple[str, str, str]]:
        return [(each["level"], each["message"], each["source"]) for each in printed()]

    def printed() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in log_file.read_text("utf-8").splitlines()]
        return [each for each in found if each.get("source") and each.get("agent") == "desk"]

    expected = [
        ("INFO", "imported", "stdout"),
        ("INFO", "on stderr", "stderr"),
        ("INFO", "on stdout", "stdout"),
        ("WARNING", "ValueError: it is made of sand", "stderr"),
    ]
    with logging_prints():
        async with running(root) as fleet, client(fleet, "desk") as desk:
            await ask(desk, message)
            await until(lambda: sorted(set(told())) == expected)
    (raised,) = [each for each in printed() if each["level"] == "WARNING"]
    assert raised["exc"].startswith("Traceback (most recent call last):")
    assert raised["exc"].endswith("ValueError: it is made of sand")
    assert capfd.readouterr() == ("", "")
