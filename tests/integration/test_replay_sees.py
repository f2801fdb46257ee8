"""What changes in an agent makes its recorded runs differ; what changes nothing leaves them as they are."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.backends import servers
from support.live import agent_module
from support.offline import offline_project
from support.projects import edit, edited
from support.pytest_process import pytest_in
from support.replayed import assert_same, of_another_day, recorded, replayed
from support.surfaces import command
from support.typed import typed_project

from pallas.agent_tests.test_run import run_recorded
from pallas.model import StepDetail
from pallas.recordings.recording_folder import write

SCRIPT = """
rules:
  - when: {last: user, text: odd}
    call: [{tool: book, arguments: {id: "odd", at: "2026-12-24"}}]
  - when: {last: user}
    call: [{tool: book, arguments: {id: "7", at: "2026-12-24 10:30"}}]
  - when: {last: tool}
    say: "so: {{ result }}"
"""
HOTEL = '''
from pathlib import Path

from fast_agent import FastAgent

fast = FastAgent("hotel")


def book(id: str, at: str) -> str:
    """Book a room."""
    with Path(__file__).with_name("booked.txt").open("a") as file:
        file.write(f"{id} {at}\\n")
    if id == "odd":
        raise ValueError("there is no such room")
    return f"room {id} at {at}"


@fast.agent(
    name="hotel",
    instruction="You book rooms. Today is {{currentDate}}. The fair is on 24 December 2026, at 10:30.",
    function_tools=[book],
)
async def main() -> None: ...
'''


def hotel(root: Path, **keys: Any) -> Path:
    return offline_project(root, {"hotel": HOTEL}, SCRIPT, keys={"hotel": keys} if keys else None)


def booked(root: Path) -> list[str]:
    """What the function has written."""
    path = root / "agents" / "booked.txt"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_a_function_is_answered_from_the_recording_and_runs_only_if_it_is_live(
    tmp_path: Path, isolation: str
) -> None:
    root = hotel(tmp_path / "p", **({"isolation": "process"} if isolation == "process" else {}))
    recording = await recorded(root, "hotel", "a room")
    assert recording.first.answer == "so: room 7 at 2026-12-24 10:30"
    assert booked(root) == ["7 2026-12-24 10:30"]
    outcome = await replayed(root, recording)
    assert_same(outcome)
    assert outcome.recording.first.answer == recording.first.answer
    assert booked(root) == ["7 2026-12-24 10:30"]
    assert_same(await replayed(root, recording, live_servers=frozenset({"local"})))
    assert len(booked(root)) == 2


@pytest.mark.slow
async def test_a_recording_with_digests_of_an_older_form_is_compared_as_a_whole(tmp_path: Path) -> None:
    root = hotel(tmp_path / "p")
    recording = await recorded(root, "hotel", "a room")

    def older(detail: StepDetail) -> StepDetail:
        return replace(detail, step=replace(detail.step, digest=sha256(b"another form").hexdigest()))

    first = replace(recording.first, steps=tuple(map(older, recording.first.steps)))
    old = replace(recording, runs=(first,))
    assert_same(await replayed(root, old))
    edit(root / "agents" / "hotel.py", "id: str, at", "id: int, at")
    assert (await replayed(root, old)).is_miss


@pytest.mark.slow
async def test_a_function_of_an_agent_of_the_same_definition_is_not_called_either(tmp_path: Path) -> None:
    boss = '@fast.agent(name="boss", instruction="You are boss.", agents=["hotel"], default=True)'
    script = SCRIPT.replace(
        "rules:\n",
        "rules:\n  - when: {last: user, system: You are boss}\n"
        '    call: [{tool: agent__hotel, arguments: {message: "a room"}}]\n',
    )
    code = f"{HOTEL}\n\n{boss}\nasync def first() -> None: ...\n"
    root = offline_project(tmp_path / "p", {"boss": code}, script)
    recording = await recorded(root, "boss", "a room")
    assert booked(root) == ["7 2026-12-24 10:30"], recording
    assert_same(await replayed(root, recording))
    assert len(booked(root)) == 1


@pytest.mark.slow
async def test_a_function_that_raised_is_replayed_and_another_call_of_it_is_not_made(tmp_path: Path) -> None:
    root = hotel(tmp_path / "p")
    recording = await recorded(root, "hotel", "an odd one")
    assert "there is no such room" in recording.first.answer
    assert_same(await replayed(root, recording))
    edit(root / "model.yaml", '"odd", at: "2026-12-24"', '"odd", at: "2026-12-25"')
    outcome = await replayed(root, recording, live_models=True)
    assert outcome.is_miss
    assert 'arguments.at is "2026-12-25", in step 2 of hotel it was "2026-12-24"' in outcome.fault
    assert outcome.fault.endswith("use --tools local=live, or record the run again")
    assert booked(root) == ["odd 2026-12-24"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id: str, at", "id: int, at", "tools[0].function.parameters.properties.id.type"),
        ("24 December 2026", "1 January 2027", "messages[0].content"),
        ("at 10:30.", "at 11:30.", "messages[0].content"),
        ("Today is {{currentDate}}", "The date is {{currentDate}}", "messages[0].content"),
        ("Today is {{currentDate}}.", "Today is 3 May 2026.", "messages[0].content"),
    ],
    ids=["an id in a schema", "a date", "a time", "words beside a date", "a date without a placeholder"],
)
async def test_a_change_of_an_agent_is_a_miss(tmp_path: Path, old: str, new: str, said: str) -> None:
    root = hotel(tmp_path / "p")
    recording = await recorded(root, "hotel", "a room")
    edit(root / "agents" / "hotel.py", old, new)
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert said in outcome.fault


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
@pytest.mark.parametrize("isolation", ["none", "process"])
async def test_the_date_of_a_template_is_that_of_the_day(tmp_path: Path, isolation: str) -> None:
    root = hotel(tmp_path / "p", **({"isolation": "process"} if isolation == "process" else {}))
    await recorded(root, "hotel", "a room")
    recording = of_another_day(root)
    assert "Today is 03 May 2025." in recording.first.steps[0].request
    assert_same(await replayed(root, recording))
    edit(root / "agents" / "hotel.py", "24 December 2026", "24 December 2027")
    assert (await replayed(root, recording)).is_miss


HARMLESS = [
    *((f"\n\ndef unused_{number}() -> int:\n    return {number}\n", "") for number in range(4)),
    *((f"\n# A comment, number {number}.\n", "") for number in range(4)),
    ("", "import os\nimport json\n"),
    ("\n\n\n", "\n"),
    ("\n", '"""Books rooms."""\n'),
    ("\nLIMIT = 3\n", ""),
]
"""What is added behind the code of an agent, and before it."""
SAME_SETTINGS = 8


@pytest.mark.slow
async def test_twenty_saves_that_change_nothing_that_matters_are_the_same(tmp_path: Path) -> None:
    root = hotel(tmp_path / "p")
    recording = await recorded(root, "hotel", "a room")
    code, settings = root / "agents" / "hotel.py", root / "agents.yaml"
    before, entries = code.read_text(), yaml.safe_load(settings.read_text())
    for behind, ahead in HARMLESS:
        code.write_text(ahead + before + behind)
        assert_same(await replayed(root, recording))
    code.write_text(before)
    for number in range(SAME_SETTINGS):
        names = list(entries)
        moved = {name: entries[name] for name in names[number % len(names) :] + names[: number % len(names)]}
        settings.write_text(f"# Saved {number} times.\n{yaml.safe_dump(moved, sort_keys=False)}")
        assert_same(await replayed(root, recording))
    assert len(HARMLESS) + SAME_SETTINGS == 20
    assert len(booked(root)) == 1


COMMANDS = """
rules:
  - when: {last: user}
    call: [{tool: bash, arguments: {command: "echo ran >> ran.txt"}}]
  - when: {last: tool}
    say: "so"
"""


@pytest.mark.slow
async def test_a_command_of_the_shell_is_run_only_if_it_is_live(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain", shell=True)}, COMMANDS)
    recording = await recorded(root, "plain", "go")
    assert (root / "ran.txt").read_text() == "ran\n"
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert "a call of bash, which runs a command, is never in a recording" in outcome.fault
    assert (root / "ran.txt").read_text() == "ran\n"


@pytest.mark.slow
async def test_a_file_is_written_only_if_functions_are_live(tmp_path: Path) -> None:
    script = COMMANDS.replace("bash", "write_text_file").replace(
        '{command: "echo ran >> ran.txt"}', '{path: "ran.txt", content: "ran"}'
    )
    root = offline_project(tmp_path / "p", {"plain": agent_module("plain", shell=True)}, script)
    recording = await recorded(root, "plain", "go")
    assert (root / "ran.txt").read_text() == "ran", recording.first.steps[0].request
    (root / "ran.txt").unlink()
    assert_same(await replayed(root, recording))
    assert not (root / "ran.txt").exists()


SERVED = """
rules:
  - when: {last: user}
    call: [{tool: shelf__find, arguments: {what: "lamps"}}]
  - when: {last: tool}
    say: "so: {{ result }}"
"""
SHELF = '''
from stdio_server import StdioServer

server = StdioServer("shelf", instructions="Find first.")


@server.tool()
def look(at: str) -> str:
    """Look at a thing."""
    return "seen"


@server.tool()
def find(what: str) -> str:
    """Find a thing."""
    return f"three {what}"


server.run()
'''


@pytest.mark.slow
async def test_what_the_lock_has_of_a_server_is_what_it_offers(tmp_path: Path) -> None:
    shelf = {"command": "python", "args": ["shelf.py"]}
    root = offline_project(
        tmp_path / "p",
        {"plain": agent_module("plain", ("shelf",))},
        SERVED,
        config={"mcp": {"servers": {"shelf": shelf}}},
        files={"shelf.py": SHELF},
    )
    recording = await recorded(root, "plain", "look")
    # Without a lock the server is asked what it offers, since its file has changed.
    with edited(root / "shelf.py", "def find(", "def seek("):
        outcome = await replayed(root, recording)
        assert outcome.is_miss
        assert "shelf offers no shelf__find any more: it is shelf__seek now" in outcome.fault
    await command("lock", "--yes", "-p", str(root))
    assert_same(await replayed(root, recording))
    for old, new, said in (
        ("def find(", "def seek(", 'tools[1].function.name is "shelf__seek"'),
        ("what: str", "what: int", 'properties.what.type is "integer"'),
        ("@server.tool()\ndef look", "def look", 'tools[0].function.name is "shelf__find"'),
    ):
        with edited(root / "shelf.py", old, new):
            await command("lock", "--yes", "-p", str(root))
            outcome = await replayed(root, recording)
            assert outcome.is_miss
            assert said in outcome.fault
    with edited(root / "agents.yaml", "agents:\n", "tools_lock: warn\nagents:\n"):
        assert_same(await replayed(root, recording))


DESK = """
    from dataclasses import dataclass

    from pallas.contract import HandlerResponse, Text
    from pallas.llm import complete

    @dataclass
    class Ask:
        text: str

    async def asker(payload, metadata):
        for question in ("first", "second"):
            answer = await complete(model="m-1", messages=[{"role": "user", "content": question}])
        return HandlerResponse.respond(Text("done"))
"""


async def kept_handler(root: Path) -> Path:
    """The test of a kept run of a handler that asked its model twice; the model is gone."""
    async with servers(["fine", "fine"]) as (server,):
        backend = {"provider": "openai", "id": "one", "base_url": server.base, "api_key": "none"}
        typed_project(
            root,
            DESK,
            {"asker": {"payload": "Ask", "agent": True}},
            top={"llm": {"retry_base_delay": 0, "backends": [{**backend, "supported_models": ["m-"]}]}},
            config={"default_model": "openai.m-1"},
        )
        recording = await recorded(root, "asker", "hello")
    assert len(recording.first.steps) == 2
    path = root / "tests" / "agents" / "lost.yaml"
    path.parent.mkdir(parents=True)
    write(recording, path.with_name("lost.recording"))
    kept = {"agent": "asker", "ask": "hello", "recording": "lost.recording"}
    path.write_text(yaml.safe_dump({**kept, "expect": {"answer": {"contains": "done"}}}))
    return path


@pytest.mark.slow
async def test_a_test_that_leaves_a_recorded_step_unused_does_not_pass_anywhere(tmp_path: Path) -> None:
    root = tmp_path / "p"
    path = await kept_handler(root)
    said = "recording: not all of the recording was used: step 2 of asker: the model request m-1 is not made"
    status, out, _ = await command("test", "-p", str(root))
    assert (status, "passed   lost" in out) == (0, True), out
    with edited(root / "desk.py", '("first", "second")', '("first",)'):
        status, out, _ = await command("test", "-p", str(root))
        assert (status, said in out) == (1, True), out
        ran = await run_recorded(root, [], 120)  # as a reload does
        assert [(each.verdict, each.failures) for each in ran.tests] == [("failed", (said,))]
        status, out, _ = await command("replay", str(path.with_name("lost.recording")), "-p", str(root))
        assert (status, "step 2 of asker: the model request m-1 is not made" in out) == (1, True)
        status, out = await pytest_in(root, "--pallas", "tests")
        assert (status, said in out) == (1, True), out
