"""A recorded run is replayed by the project's fleet without its models and MCP servers."""

import asyncio
import base64
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.live import running
from support.pictures import picture
from support.projects import edit
from support.recorded import PICTURE, close_shelf, recorded_project
from support.replayed import assert_same, recorded, replayed, replaying
from support.waiting import until

from pallas.config import load_project
from pallas.ledger.ledger_address import database_url_of, default_path
from pallas.model import Image, RecordedRun, Recording, RunFinished, RunStarted
from pallas.model.long_strings import shortened


def large() -> str:
    """The data of another picture each time, which steps replace by its length and digest."""
    return base64.b64encode(picture() + os.urandom(30_000)).decode()


ASKED = "How many?"
SHOWN = {"images": (Image(PICTURE, "image/png"),)}


_watched: list[Any] | None = None


@contextmanager
def connections() -> Iterator[list[Any]]:
    """The addresses that this process connects to or looks up in this block."""
    global _watched
    _watched = found = []
    sys.addaudithook(_audit)
    try:
        yield found
    finally:
        _watched = None


def _audit(event: str, given: tuple[Any, ...]) -> None:
    if _watched is not None and event in ("socket.connect", "socket.getaddrinfo", "subprocess.Popen"):
        _watched.append((event, given[1] if event == "socket.connect" else given))


@pytest.mark.slow
async def test_a_hundred_replays_are_the_same_without_a_connection_outside_of_the_process(
    tmp_path: Path,
) -> None:
    root = recorded_project(tmp_path / "p")
    (root / "picture.png").write_bytes(base64.b64decode(large()))
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    assert {run.agent for run in recording.runs} == {"lead", "clerk", "keeper"}
    assert any("SHA-256" in each.request for run in recording.runs for each in run.steps)
    close_shelf(root)  # no server is started that could answer
    for agent in ("lead", "clerk", "keeper"):
        recording = slowed(recording, agent, seconds=1_000_000.0)
    with connections() as made:
        async with replaying(root, recording) as fleet, asyncio.timeout(220):  # no answer is waited for
            port = fleet.port
            for _ in range(100):
                outcome = await fleet.replay()
                assert_same(outcome)
                assert outcome.recording.first.answer == recording.first.answer
    addresses = {each for event, each in made if event == "socket.connect"}
    assert addresses == {("127.0.0.1", port)}  # the clerk is called by its URL
    assert [each for each in made if each[0] == "subprocess.Popen"] == []
    looked_up = {each[0] for event, each in made if event == "socket.getaddrinfo"}
    assert looked_up <= {"127.0.0.1", b"127.0.0.1", None}


@pytest.mark.slow
@pytest.mark.usefixtures("forked_children")
async def test_agents_in_processes_of_their_own_are_replayed(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p", isolation="process")
    alone = await recorded(root, "clerk", "find lamps")
    assert (alone.missing, PICTURE in alone.first.steps[3].response) == ((), True)
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    assert recording.missing == ()
    close_shelf(root)
    async with replaying(root, recording) as fleet:
        for _ in range(3):
            assert_same(await fleet.replay())
    edit(root / "agents" / "clerk.py", "You are clerk.", "You are Clark.")
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert 'messages[0].content is "You are Clark."' in outcome.fault


@pytest.mark.slow
async def test_a_replay_takes_no_port_and_writes_no_database_of_a_fleet_that_runs(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p", top={"database_url": "sqlite:///ledger.sqlite3"})
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    project = load_project(root)
    assert database_url_of(project, {}) == f"sqlite:///{root}/ledger.sqlite3"
    async with replaying(root, recording) as one, replaying(root, recording) as other:
        assert one.port != other.port
        assert_same(await one.replay())
    assert [path for path in (root / "ledger.sqlite3", default_path(project)) if path.exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "words"),
    [
        (
            "agents/lead.py",
            "You are lead.",
            "You are leader.",
            'lead is not in the recording: messages[0].content is "You are leader.", '
            'in step 1 of lead it was "You are lead."',
        ),
        (
            "agents/clerk.py",
            "You are clerk.",
            "You are Clark.",
            'clerk is not in the recording: messages[0].content is "You are Clark.", '
            'in step 1 of clerk it was "You are clerk."',
        ),
        (
            "agents.yaml",
            "\n  lead:\n",
            "\n  lead:\n    params: {temperature: 0.25}\n",
            "temperature is 0.25, in step 1 of lead it was nothing",
        ),
    ],
)  # fmt: skip
async def test_what_was_not_recorded_is_a_miss_that_names_the_first_field(
    tmp_path: Path, file: str, old: str, new: str, words: str
) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    edit(root / file, old, new)
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert not outcome.is_same
    assert words in outcome.fault
    assert outcome.fault.endswith("; use --models live, or record the run again")


@pytest.mark.slow
async def test_another_picture_is_a_miss(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, images=(Image(large(), "image/png"),))
    assert_same(await replayed(root, recording))
    first = replace(recording.first, images=(Image(large(), "image/png"),))
    outcome = await replayed(root, replace(recording, runs=(first, *recording.runs[1:])))
    assert outcome.is_miss
    assert "messages[1].content" in outcome.fault


@pytest.mark.slow
async def test_a_picture_of_a_tool_that_the_recording_lacks_is_no_difference(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    data = large()
    (root / "picture.png").write_bytes(base64.b64decode(data))
    recording = await recorded(root, "lead", ASKED, **SHOWN)

    def without(run: RecordedRun) -> RecordedRun:
        stored = shortened(data)
        return replace(
            run,
            steps=tuple(replace(each, response=each.response.replace(data, stored)) for each in run.steps),
        )

    lacking = replace(recording, runs=tuple(map(without, recording.runs)))
    assert lacking != recording
    assert_same(await replayed(root, lacking))


@pytest.mark.slow
async def test_live_models_ask_recorded_tools_and_a_call_that_is_not_there_fails_the_run(
    tmp_path: Path,
) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    close_shelf(root)
    assert_same(await replayed(root, recording, live_models=True))
    async with running(root):  # its offline model has the port, and answers
        assert_same(await replayed(root, recording, live_models=True))
    edit(root / "model.yaml", 'arguments: {what: "lamps"}', 'arguments: {what: "chairs"}')
    outcome = await replayed(root, recording, live_models=True)
    assert outcome.is_miss
    assert outcome.fault == (
        "replay: the tool request shelf__find of clerk is not in the recording: arguments.what is "
        '"chairs", in step 2 of clerk it was "lamps"; use --tools shelf=live, or record the run again'
    )


@pytest.mark.slow
async def test_a_renamed_tool_of_a_live_server_is_a_miss(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    for plan in ({"live_tools": True}, {"live_servers": frozenset({"shelf"})}):
        assert_same(await replayed(root, recording, **plan))
    edit(root / "shelf.py", "def find(", "def seek(")
    outcome = await replayed(root, recording, live_servers=frozenset({"shelf"}))
    assert outcome.is_miss
    assert re.search(r'tools\[\d\].function.name is "shelf__seek", .* it was "shelf__find"', outcome.fault)
    # One that answers from the recording is asked what it offers, since its file has changed.
    outcome = await replayed(root, recording)
    assert outcome.is_miss
    assert "shelf offers no shelf__find any more: it is shelf__seek now" in outcome.fault
    edit(root / "shelf.py", "def seek(", "def find(")
    assert_same(await replayed(root, recording))


@pytest.mark.slow
async def test_what_differs_is_told_if_live_tools_answer_otherwise(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    edit(root / "model.yaml", "I keep nine lamps", "I keep ten lamps")
    outcome = await replayed(root, recording, live_models=True)
    assert not outcome.is_miss
    assert "nine lamps" in str(outcome.difference)
    assert "ten lamps" in str(outcome.difference)


@pytest.mark.slow
async def test_a_replay_is_a_run_on_the_surface_replay(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    async with replaying(root, recording) as fleet:
        await fleet.replay()
        started = [each for each in fleet.hub.since(0).events if isinstance(each, RunStarted)]
    assert {each.agent: each.surface for each in started}["lead"] == "replay"


@pytest.mark.slow
async def test_a_cancelled_replay_ends_everything_below_it(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    recording = await recorded(root, "lead", ASKED, **SHOWN)
    async with replaying(root, slowed(recording, "clerk"), is_timed=True) as fleet:
        task = asyncio.create_task(fleet.replay())

        def under_way() -> bool:
            events = fleet.hub.since(0).events
            return any(isinstance(each, RunStarted) and each.agent == "clerk" for each in events)

        await until(under_way)
        task.cancel()
        await asyncio.wait({task}, timeout=60)
        assert task.cancelled()
        await until(lambda: len(fleet.runs_in_flight) == 0)
        finished = [each for each in fleet.hub.since(0).events if isinstance(each, RunFinished)]
        assert {each.agent: each.outcome for each in finished if each.agent != "keeper"} == {
            "lead": "cancelled",
            "clerk": "cancelled",
        }


def slowed(recording: Recording, agent: str, seconds: float = 60.0) -> Recording:
    """The same recording in which each answer to an agent took so long."""

    def slow(run: Any) -> Any:
        if run.agent != agent:
            return run
        return replace(
            run, steps=tuple(replace(each, step=replace(each.step, seconds=seconds)) for each in run.steps)
        )

    return replace(recording, runs=tuple(map(slow, recording.runs)))
