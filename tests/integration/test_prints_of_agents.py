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
from concurrent.futures import ThreadPoolExecutor
from threading import Thread


def printed_in_threads():
    thread = Thread(target=print_in_thread)
    thread.start()
    thread.join()
    with ThreadPoolExecutor() as pool:
        pool.submit(print_in_thread).result()


def print_in_thread():
    print("in a thread")


def talk():
    printed_in_threads()
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


def records(file: Path) -> list[dict[str, Any]]:
    """All that is in a log."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


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
        return [each for each in records(log_file) if each.get("source") and each.get("agent") == "desk"]

    expected = [
        ("INFO", "imported", "stdout"),
        ("INFO", "in a thread", "stdout"),
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


SHARED = """
from threading import Thread


def in_thread(text):
    thread = Thread(target=say, args=(text,))
    thread.start()
    thread.join()


def say(text):
    print(text)
"""
SPEAKER = """
from threading import Thread

from fast_agent import FastAgent

from shared import in_thread

fast = FastAgent("NAME")


def say():
    print("NAME in its own thread")


def talk() -> str:
    in_thread("NAME in shared code")
    thread = Thread(target=say)
    thread.start()
    thread.join()
    return "done"


thread = Thread(target=print, args=("NAME by a function of Python",))
thread.start()
thread.join()
thread = Thread(target=say)
thread.start()
thread.join()


@fast.agent(name="NAME", instruction="You are NAME.", function_tools=[talk])
async def main() -> None: ...
"""


async def test_threads_belong_to_the_agent_whose_code_alone_they_run(
    tmp_path: Path, log_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = offline_project(
        tmp_path / "p",
        {name: SPEAKER.replace("NAME", name) for name in ("one", "two")},
        SCRIPT,
        files={"shared.py": SHARED},
    )
    with logging_prints():
        async with running(root) as fleet:
            for name in ("one", "two"):
                async with client(fleet, name) as connected:
                    await ask(connected, "talk")
    told = [(each["agent"], each["message"]) for each in records(log_file) if each.get("source") == "stdout"]
    assert sorted(told) == [(name, f"{name} in its own thread") for name in ("one", "one", "two", "two")]
    # No line has the name of an agent that may not have printed it.
    left = {
        f"{name} {words}"
        for name in ("one", "two")
        for words in ("in shared code", "by a function of Python")
    }
    assert {*capsys.readouterr().out.splitlines()} == left
