"""A run goes on from a step of another one: over REST, by `pallas fork`, and from a workbench."""

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST
from support.projects import edit
from support.recorded import PICTURE, recorded_project
from support.recorded_runs import asked
from support.recorded_runs import fleet as fleet
from support.served import Served
from support.surfaces import command, rest, typed
from support.waiting import until

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import (
    Fault,
    FaultType,
    FleetPort,
    FleetState,
    Recording,
    RunFinished,
    RunStarted,
    StepDetail,
)
from pallas.recordings.recording_folder import read, read_archive
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource


async def forked(fleet: Served, run: str, **body: Any) -> tuple[str, str]:
    """The id of a run that goes on from another one, and its answer."""
    async with rest(fleet) as http:
        answer = await http.post(f"/runs/{run}/fork", json=body)
        assert answer.status_code == 200, answer.text
        return answer.headers["pallas-run-id"], answer.json()["text"]


async def refused(fleet: Served, run: str, **body: Any) -> tuple[int, str]:
    async with rest(fleet) as http:
        answer = await http.post(f"/runs/{run}/fork", json=body)
        return answer.status_code, answer.json()["error"]


async def recording_of(fleet: Served, run: str) -> Recording:
    async with rest(fleet) as http:
        answer = await http.get(f"/runs/{run}/recording")
        assert answer.status_code == 200, answer.text
        return read_archive(answer.content)


def steps(recording: Recording) -> list[tuple[int, str, str]]:
    return [(each.step.number, each.step.kind, each.step.name) for each in recording.first.steps]


def step(recording: Recording, name: str) -> StepDetail:
    return next(each for each in recording.first.steps if each.step.name == name)


@pytest.mark.parametrize("era", MODERN_FIRST)
@pytest.mark.parametrize("thread", [{}, {"conversation_id": "seen before"}])
async def test_a_question_to_the_model_is_asked_again(
    fleet: Served, era: str, thread: dict[str, str]
) -> None:
    run = await asked(fleet, "find lamps", "clerk", era, **thread)
    before = await recording_of(fleet, run)
    other, text = await forked(fleet, run, step=5)
    assert text == "three lamps, seen"
    after = await recording_of(fleet, other)
    assert steps(after) == steps(before)
    # The steps before are those of the other run, and the model got the same as then.
    assert [each.request for each in after.first.steps] == [each.request for each in before.first.steps]
    assert [each.step.parent for each in after.first.steps] == [
        each.step.parent for each in before.first.steps
    ]
    async with rest(fleet) as http:
        document = (await http.get(f"/runs/{other}")).json()
        assert (document["forkedFrom"], document["forkedAtStep"]) == (run, 5)
        assert (await http.get(f"/runs/{run}")).json()["forkedFrom"] is None
    assert PICTURE in after.first.steps[3].response
    # The steps before are paid for by the other run.
    paid = [
        [each.step.cost for each in one.first.steps if each.step.kind == "model"] for one in (before, after)
    ]
    assert all(paid[0])
    assert paid[1] == [0] * (len(paid[0]) - 1) + paid[0][-1:]
    assert (before.first.cost, after.first.cost) == (sum(each or 0 for each in paid[0]), paid[0][-1])


@pytest.mark.parametrize("thread", [{}, {"conversation_id": "edited"}])
async def test_a_call_has_another_result(fleet: Served, thread: dict[str, str]) -> None:
    run = await asked(fleet, "How many?", **thread)
    before = await recording_of(fleet, run)
    call = step(before, "keeper").step.number
    other, text = await forked(fleet, run, step=call, result="I keep a thousand lamps")
    assert text == "All in all: three lamps, seen\n\nI keep a thousand lamps"
    after = await recording_of(fleet, other)
    # The clerk is not asked again: what it did belongs to the run from which this one goes on.
    assert steps(after) == steps(before)
    assert [each.id for each in after.runs[1:]] == [each.id for each in before.runs if each.agent == "clerk"]
    assert "a thousand" in step(after, "keeper").response
    async with rest(fleet) as http:
        (clerk,) = [each for each in before.runs if each.agent == "clerk"]
        runs = (await http.get("/runs", params={"agent": "clerk", "limit": 1})).json()["items"]
        assert runs[0]["id"] == clerk.id


async def test_a_call_is_made_again(fleet: Served) -> None:
    run = await asked(fleet, "How many?")
    before = await recording_of(fleet, run)
    call = step(before, "keeper").step.number
    other, text = await forked(fleet, run, step=call)
    assert text == "All in all: three lamps, seen\n\nI keep nine lamps"
    after = await recording_of(fleet, other)
    assert sorted(name for _, _, name in steps(after)) == sorted(name for _, _, name in steps(before))
    again = step(after, "keeper").step
    assert again.parent == 1
    keepers = [[each.id for each in found.runs if each.agent == "keeper"] for found in (before, after)]
    assert keepers[0] != keepers[1]


async def test_another_question_and_another_model(fleet: Served) -> None:
    run = await asked(fleet, "find lamps", "clerk", conversation_id="first")
    other, text = await forked(fleet, run, step=1, message="hello", temperature=0.5)
    assert text == "hello, turn 1"
    after = await recording_of(fleet, other)
    assert (after.first.question, after.first.params) == ("hello", {"temperature": 0.5})
    assert steps(after) == [(1, "model", "scripted")]
    changed, _ = await forked(fleet, run, step=3, model="scripted")
    assert step(await recording_of(fleet, changed), "shelf__look").step.number == 4


async def test_the_conversation_goes_on(fleet: Served) -> None:
    run = await asked(fleet, "find lamps", "clerk", conversation_id="goes on")
    async with rest(fleet) as http:
        first = await http.post(f"/runs/{run}/fork", json={"step": 5})
        thread = first.json()["threadId"]
        said = await http.post("/agents/clerk/chat", json={"message": "hello", "threadId": thread})
        assert said.json()["text"] == "hello, turn 2"
        rows = (await http.get(f"/threads/{thread}/messages")).json()["items"]
    assert [each["role"] for each in rows] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"step": 9}, "step: run RUN of lead has no step 9; it has 1 to 4"),
        ({"step": 1, "result": "x"}, "result: step 1 is not a call, and only a call has a result"),
        ({}, "step: is missing"),
        ({"step": 1, "temperature": "hot"}, "temperature: must be a number"),
    ],
)
async def test_a_step_that_no_run_goes_on_from(fleet: Served, body: dict[str, Any], said: str) -> None:
    run = await asked(fleet, "How many?")
    status, error = await refused(fleet, run, **body)
    assert status == 400
    assert error.startswith(said.replace("RUN", run))


async def test_a_fork_is_streamed(fleet: Served) -> None:
    run = await asked(fleet, "find lamps", "clerk")
    async with rest(fleet) as http:
        answer = await http.post(f"/runs/{run}/fork", json={"step": 5, "stream": True})
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "seen" in answer.text


async def end_of(port: FleetPort, run: str) -> RunFinished:
    """The event of a fleet that a run ended with."""

    def found() -> RunFinished | None:
        said = [each for each in port.since(0).events if isinstance(each, RunFinished)]
        return next((each for each in said if each.run_id == run), None)

    end: RunFinished = await until(found, timeout=60)
    return end


async def read_from(port: FleetPort, run: str) -> Recording:
    return read_archive(base64.b64decode(await port.recording(run)))


async def goes_on_in_a_workbench(port: FleetPort, run: str) -> None:
    """What a workbench can change in a run of ``lead`` that was asked "How many?"."""
    call = step(await read_from(port, run), "keeper").step.number
    for changed, answer in (
        ({"result": "I keep a thousand lamps"}, "I keep a thousand lamps"),
        ({"result": ""}, "[Tool completed successfully]"),  # what fast-agent says of a result without text
        ({}, "I keep nine lamps"),
    ):
        other = await port.fork(run, call, **changed)
        assert (await end_of(port, other)).outcome == "ok"
        after = await read_from(port, other)
        assert after.first.answer == f"All in all: three lamps, seen\n\n{answer}"
        said = [each for each in port.since(0).events if isinstance(each, RunStarted)]
        (began,) = [each for each in said if each.run_id == other]
        assert (began.forked_from, began.forked_at, began.surface) == (run, call, "fork")
    other = await port.fork(run, 1, message="hello", model="scripted")
    assert (await end_of(port, other)).outcome == "ok"
    assert (await read_from(port, other)).first.question == "hello"
    for arguments, why in (
        ({"step": 9}, f"step: run {run} of lead has no step 9"),
        ({"step": 1, "result": "x"}, "result: step 1 is not a call"),
    ):
        with pytest.raises(Fault, match=why) as refused:
            await port.fork(run, **arguments)
        assert refused.value.type is FaultType.PROTOCOL
    with pytest.raises(Fault, match="run not found"):
        await port.fork("nobody", 1)


@pytest.mark.slow
async def test_a_workbench_goes_on_from_a_run_of_a_fleet_elsewhere(fleet: Served) -> None:
    run = await asked(fleet, "How many?")
    elsewhere = RemoteFleet(fleet.registry, TokenSource(fleet.registry))
    elsewhere.start()
    try:
        await until(lambda: elsewhere.can_control)
        await goes_on_in_a_workbench(elsewhere, run)
    finally:
        elsewhere.stop()


@pytest.mark.slow
async def test_a_workbench_goes_on_from_a_run_of_its_own_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_LOG_FILE", str(tmp_path / "pallas.log"))
    monkeypatch.chdir(tmp_path)
    own = ThreadedFleet(recorded_project(tmp_path / "p"))
    own.start()
    try:
        await until(lambda: own.snapshot().state is FleetState.RUNNING, timeout=60)
        outcome = await own.call_tool("lead", "", "send_message", {"message": "How many?"})
        assert outcome.ok, outcome
        began = [each for each in own.since(0).events if isinstance(each, RunStarted)]
        run = next(each.run_id for each in began if each.agent == "lead")
        await goes_on_in_a_workbench(own, run)
        # A run that goes on is one of the fleet: it can be cancelled, and ends with the fleet.
        waiting = await own.fork(run, 1, message="wait")
        own.cancel(waiting)
        assert (await end_of(own, waiting)).outcome == "cancelled"
        waiting = await own.fork(run, 1, message="wait")
    finally:
        own.stop(10)
    assert (await end_of(own, waiting)).outcome == "cancelled"


async def test_the_run_of_another_caller_is_not_found(fleet: Served) -> None:
    assert await refused(fleet, "nosuchrun", step=1) == (
        404, "run not found: it is unknown, deleted, or belongs to another caller",
    )  # fmt: skip


@pytest.mark.slow
async def test_the_command_goes_on_in_the_running_fleet(fleet: Served, tmp_path: Path) -> None:
    run = await asked(fleet, "How many?")
    call = step(await recording_of(fleet, run), "keeper").step.number
    said = await typed(
        "fork", run, "--at", str(call), "--result", "none left", "--record", str(tmp_path / "new"),
        "-p", str(fleet.root),
    )  # fmt: skip
    assert said.startswith(f"All in all: three lamps, seen\n\nnone left\n\n- {run}: 10 steps, 3 runs, ")
    assert "[-I keep nine lamps-]{+none left+}" in said.partition("They differ first at")[2]
    new = read(tmp_path / "new").first
    assert (new.forked_from, new.forked_at) == (run, call)
    assert (new.answer, new.id != run) == ("All in all: three lamps, seen\n\nnone left", True)
    described = await typed("describe", "run/last", "-p", str(fleet.root))
    assert described.splitlines()[0].split() == ["ID:", new.id]
    assert re.search(rf"^Forked from: +{run}\nForked at step: +{call}$", described, re.MULTILINE)


@pytest.mark.slow
async def test_the_command_goes_on_from_a_recording_without_a_fleet(fleet: Served, tmp_path: Path) -> None:
    run = await asked(fleet, "find lamps", "clerk")
    await typed("record", run, "-o", str(tmp_path / "old"), "-p", str(fleet.root))
    changes = ("--at", "1", "--message", "hello", "-o", "json", "-p", str(fleet.root))
    said = json.loads(await typed("fork", str(tmp_path / "old"), *changes))
    assert said == {
        "id": said["id"], "agent": "clerk", "forkedFrom": run, "forkedAtStep": 1, "status": "ok",
        "answer": "hello, turn 1", "fault": None,
    }  # fmt: skip


@pytest.mark.slow
async def test_a_run_goes_on_with_a_revision_of_git_over_rest(fleet: Served) -> None:
    run = await asked(fleet, "find lamps", "clerk")
    clerk = fleet.root / "agents" / "clerk.py"
    was = clerk.read_text()
    git(fleet.root, "init", "-q")
    (fleet.root / ".gitignore").write_text("*.sqlite3*\n")
    edit(clerk, "You are clerk.", "You are clerk. Be brief.")
    git(fleet.root, "add", "-A")
    git(fleet.root, "commit", "-q", "-m", "brief")
    clerk.write_text(was)
    async with rest(fleet) as http:
        asked_for = {"step": 1, "version": "HEAD"}
        answer = await http.post(f"/runs/{run}/fork", json=asked_for, timeout=200)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert (await http.get(f"/runs/{body['runId']}")).status_code == 404  # no ledger has it
    new = read_archive(base64.b64decode(body["recording"])).first
    assert (body["text"], body["runId"], body["threadId"]) == (new.answer, new.id, None)
    assert (new.forked_from, new.forked_at, new.status) == (run, 1, "ok")
    assert "You are clerk. Be brief." in new.steps[0].request
    assert len(body["version"]) == 40
    assert clerk.read_text() == was
    for given, text in {
        "nosuch": "version: nosuch is no revision of the project",
        "--output=x": "version: --output=x is no revision of git; name a commit, a branch or a tag",
        "../p": "version: ../p is no revision of git; name a commit, a branch or a tag",
        "agents": "version: agents is no revision of the project",
    }.items():
        assert await refused(fleet, run, step=1, version=given) == (400, text)
    for more, key in ({"stream": True}, "stream"), ({"temperature": 0.5}, "temperature"):
        status, text = await refused(fleet, run, step=1, version="HEAD", **more)  # type: ignore[arg-type]
        assert (status, text.startswith(f"{key}: a run of another version ")) == (400, True), text


def git(root: Path, *words: str) -> None:
    own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", *own, *words], cwd=root, check=True, capture_output=True, timeout=60)


@pytest.mark.slow
async def test_the_command_goes_on_with_another_version_of_the_project(fleet: Served, tmp_path: Path) -> None:
    run = await asked(fleet, "find lamps", "clerk")
    version = tmp_path / "brief"
    shutil.copytree(fleet.root, version, ignore=shutil.ignore_patterns("*.sqlite3*", "recordings"))
    edit(version / "agents" / "clerk.py", "You are clerk.", "You are clerk. Be brief.")
    at = ("--at", "1", "-p", str(fleet.root))
    said = await typed("fork", run, *at, "--version", str(version), "--record", str(tmp_path / "new"))
    assert "You are clerk.{+ Be brief.+}" in said
    new = read(tmp_path / "new").first
    assert (new.forked_from, new.forked_at, new.status) == (run, 1, "ok")
    assert "You are clerk. Be brief." in new.steps[0].request
    assert "You are clerk. Be brief." not in (fleet.root / "agents" / "clerk.py").read_text()
    status, out, err = await command("fork", run, *at, "--version", "nosuch")
    assert (status, out) == (2, "")
    assert err.startswith("pallas fork: --version nosuch: no folder of a project, and no revision: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (
            ("nosuchrun", "--at", "1"),
            1,
            "run not found: it is unknown, deleted, or belongs to another caller",
        ),
        (("./nowhere", "--at", "1"), 2, "pallas fork: nowhere"),
        (("last", "--at", "99"), 1, "step: run "),
        (("last", "--at", "1", "--model", "two words"), 1, "model: must be"),
        (("last", "--at", "1", "-o", "xml"), 2, "pallas fork: --output xml: allowed: text, json"),
    ],
)
async def test_wrong_use_of_the_command(
    fleet: Served, words: tuple[str, ...], status: int, said: str
) -> None:
    await asked(fleet, "hello", "clerk")
    found, out, err = await command("fork", *words, "-p", str(fleet.root))
    assert (found, out) == (status, "")
    assert err.startswith(said)
