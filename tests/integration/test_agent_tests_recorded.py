"""Kept runs are tests that pass without a model, fail when something changes, and run in pytest too."""

import asyncio
import json
import os
import shutil
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from support import pallas_process
from support.projects import edited
from support.pytest_process import pytest_in
from support.recorded import close_shelf, recorded_project
from support.recorded_runs import asked
from support.served import served
from support.surfaces import command

TESTS = {
    "lamps": ("lead", "How many lamps?"),
    "seen": ("clerk", "find lamps"),
    "hello": ("keeper", "hello"),
    "again": ("keeper", "hello"),
    "count": ("keeper", "count lamps"),
}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def root(tmp_path_factory: Any) -> Path:
    """A project with five kept runs. Neither its model nor its tool server can be asked any more."""
    root = recorded_project(tmp_path_factory.mktemp("kept") / "p")
    with served(root) as fleet:
        await fleet.says("] running")
        for name, (agent, text) in TESTS.items():
            run = await asked(fleet, text, agent, conversation_id=f"thread {agent}")
            assert (await pallas(root, "keep", run, name))[0] == 0
    close_shelf(root)
    return root


async def pallas(root: Path, *words: str) -> tuple[int, str, str]:
    return await command(*words, "-p", str(root))


async def verdicts(root: Path, *words: str) -> dict[str, str]:
    _, out, err = await pallas(root, "test", *words, "-o", "json")
    assert err == ""
    return {test["name"]: test["verdict"] for test in json.loads(out)["tests"]}


@pytest.mark.slow
async def test_kept_runs_pass_without_model_and_tools(root: Path) -> None:
    status, out, err = await pallas(root, "test")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert sorted(line.split()[:2] for line in lines[:5]) == [["passed", name] for name in sorted(TESTS)]
    assert lines[5] == ""
    assert lines[6].split() == ["TEST", "VERDICT", "SECONDS"]
    assert [line.split()[:2] for line in lines[7:12]] == [[name, "passed"] for name in sorted(TESTS)]
    assert lines[12].startswith("5 passed in ")
    assert len(lines) == 13


WAITS = """
from pathlib import Path
from time import monotonic, sleep

def waits(recording):
    end = monotonic() + 50
    while not Path(__file__).with_name("go").exists():
        if monotonic() > end:
            return "it was not told to go on"
        sleep(0.01)
    return True
"""


@pytest.mark.slow
async def test_tests_are_reported_while_others_run(root: Path) -> None:
    path = root / "tests" / "agents" / "hello.yaml"
    (root / "waiting.py").write_text(WAITS)
    scored = yaml.safe_dump({**yaml.safe_load(path.read_text()), "scorers": ["waiting:waits"]})
    with edited(path, path.read_text(), scored):
        process = await pallas_process.start_async("test", "-p", str(root), stdout=PIPE)
        try:
            async with asyncio.timeout(90):
                assert process.stdout is not None
                first = [(await process.stdout.readline()).decode().split()[:2] for _ in range(4)]
                (root / "go").touch()
                rest = (await process.stdout.read()).decode().splitlines()
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            (root / "go").unlink(missing_ok=True)
    assert sorted(first) == [["passed", name] for name in sorted(TESTS) if name != "hello"]
    assert rest[0].split()[:2] == ["passed", "hello"]
    assert rest[-1].startswith("5 passed in ")


@pytest.mark.slow
async def test_a_summary_for_github_has_a_table_and_each_failure(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("# Before\n")
    entry = yaml.safe_load((root / "tests" / "agents" / "hello.yaml").read_text())
    wanted = {**entry, "expect": {"answer": {"contains": "a | b <i> ```"}}}
    with edited(
        root / "tests" / "agents" / "hello.yaml",
        (root / "tests" / "agents" / "hello.yaml").read_text(),
        yaml.safe_dump(wanted),
    ):
        status, out, _ = await pallas(root, "test", "hello", "count", "--summary", str(path))
    assert status == 1
    assert "1 failed" in out
    text = path.read_text()
    assert text.startswith("# Before\n\n## Agent tests: 1 passed, 1 failed in ")
    assert "\n| test | verdict | seconds | why |\n|---|---|---|---|\n| count | passed | " in text
    assert "\n| hello | **failed** | " in text
    assert "'a \\| b \\<i\\> \\`\\`\\`' is not in 'hello, turn 1' |\n" in text
    more = {**os.environ, "GITHUB_STEP_SUMMARY": str(path)}
    done = await asyncio.to_thread(
        pallas_process.run, "test", "count", "-p", str(root), env=more, capture_output=True
    )
    assert done.returncode == 0
    assert path.read_text().startswith(text + "\n## Agent tests: 1 passed in ")
    status, _, err = await pallas(root, "test", "count", "--summary", str(tmp_path))
    assert status == 2
    assert err.startswith(f"pallas test: {tmp_path}: cannot be read or written: is a directory")
    assert err.endswith("name another place\n")


@pytest.mark.slow
async def test_a_test_that_passes_passes_each_time(root: Path) -> None:
    entry = yaml.safe_load((root / "tests" / "agents" / "lamps.yaml").read_text())
    cases = [json.dumps({"ask": entry["ask"], "recording": entry["recording"]})] * 50
    (root / "tests" / "agents" / "fifty.jsonl").write_text("\n".join(cases))
    many = {"agent": "lead", "cases": "fifty.jsonl", "expect": entry["expect"]}
    path = root / "tests" / "agents" / "fifty.yaml"
    path.write_text(yaml.safe_dump(many))
    try:
        found = await verdicts(root, "fifty")
    finally:
        path.unlink()
    assert list(found.values()) == ["passed"] * 50


@pytest.mark.slow
async def test_recordings_with_other_tools_of_the_same_name_are_replayed_too(root: Path) -> None:
    tests = root / "tests" / "agents"
    older = tests / "older.recording"
    shutil.copytree(tests / "seen.recording", older)
    for path in (*older.rglob("*-model.yaml"), *older.glob("offers/*.yaml")):
        path.write_text(path.read_text().replace("Find a thing on the shelf.", "Find something."))
    assert "Find something." in (older / "1-clerk" / "001-model.yaml").read_text()
    entry = yaml.safe_load((tests / "seen.yaml").read_text())
    (tests / "older.yaml").write_text(yaml.safe_dump({**entry, "recording": older.name}))
    try:
        found = await verdicts(root)
    finally:
        (tests / "older.yaml").unlink()
    assert found == dict.fromkeys([*TESTS, "older"], "passed")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("agents/clerk.py", "You are clerk.", "You are Clark.", 'messages[0].content is "You are Clark."'),
        ("agents/lead.py", "You are lead.", "You are led.", 'messages[0].content is "You are led."'),
        ("agents.yaml", "    peers:\n    - keeper\n", "", "tools"),
        ("agents.yaml", "\n  lead:\n", "\n  lead:\n    params: {temperature: 0.5}\n", "temperature is 0.5"),
    ],
    ids=["prompt of another agent", "prompt", "lost tool", "parameter"],
)  # fmt: skip
async def test_a_change_fails_the_test_and_names_the_field(
    root: Path, file: str, old: str, new: str, said: str
) -> None:
    with edited(root / file, old, new):
        status, out, _ = await pallas(root, "test", "lamps")
    assert status == 1
    assert "FAILED   lamps" in out
    assert said in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expect", "said"),
    [
        ({"answer": {"contains": "nine hundred"}}, "answer.contains: "),
        ({"calls": {"order": ["shelf__look", "shelf__find"]}}, "calls.order: "),
        ({"calls": {"arguments": {"shelf__find": {"$.what": "lamp"}}}}, "calls.arguments.shelf__find: "),
        ({"agents": ["vision"]}, "agents: vision was not asked"),
        ({"most": {"steps": 2}}, "most.steps: "),
        ({"most": {"tokens": 3}}, "most.tokens: "),
        ({"most": {"usd": 0.000001}}, "most.usd: it cost $0."),
        ({"fails": ""}, "fails: the run must fail"),
    ],
)
async def test_what_is_expected_is_checked_in_a_replay(root: Path, expect: Any, said: str) -> None:
    path = root / "tests" / "agents" / "lamps.yaml"
    entry = yaml.safe_load(path.read_text())
    with edited(path, path.read_text(), yaml.safe_dump({**entry, "expect": expect})):
        status, out, _ = await pallas(root, "test", "lamps")
    assert status == 1
    assert said in out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("faults", "expect", "said"),
    [
        # The retry gets the recorded answer, and does not wait for it.
        ([{"to": "scripted", "what": 429, "at": 1, "retry_after": 30}], {}, "passed   lamps"),
        ([{"to": "*", "what": "cut", "rate": 0.3, "seed": 2}], {}, "passed   lamps"),
        ([{"to": "*", "what": "slow", "at": [1, 2], "seconds": 60}], {}, "passed   lamps"),
        ([{"to": "scripted", "what": "dropped", "rate": 1}], {}, "FAILED   lamps"),
        ([{"to": "scripted", "what": "dropped", "rate": 1}], {"fails": "closed the connection"}, "passed   "),
        ([{"to": "scripted", "what": 401, "at": 1}], {"fails": "refused the key"}, "passed   lamps"),
        # Its model would say something else then, which was not recorded.
        ([{"to": "shelf__find", "what": 500, "at": 1}], {}, "is not in the recording"),
    ],
)  # fmt: skip
async def test_a_test_asks_whether_the_agent_copes_with_faults(
    root: Path, faults: Any, expect: Any, said: str
) -> None:
    path = root / "tests" / "agents" / "lamps.yaml"
    entry = yaml.safe_load(path.read_text())
    entry |= {"faults": faults, "expect": expect or entry["expect"]}
    with edited(path, path.read_text(), yaml.safe_dump(entry)):
        status, out, _ = await pallas(root, "test", "lamps", "hello")
    assert said in out
    assert status == int(not said.startswith("passed"))
    # Faults of one test are no faults of the others.
    assert "passed   hello" in out


@pytest.mark.slow
async def test_faults_of_a_test_are_not_injected_live(root: Path) -> None:
    path = root / "tests" / "agents" / "cut.yaml"
    path.write_text("agent: keeper\nask: hello\nfaults: [{to: scripted, what: cut, at: 1}]\n")
    try:
        status, out, _ = await pallas(root, "test", "cut", "--live")
    finally:
        path.unlink()
    assert status == 0
    assert "skipped  cut" in out
    assert "faults: are injected in fleets of their own only: add --own" in out


@pytest.mark.slow
async def test_faults_of_workers_and_remote_agents_are_not_injected_into_recordings(root: Path) -> None:
    path = root / "tests" / "agents" / "lamps.yaml"
    entry = yaml.safe_load(path.read_text())
    entry["faults"] = [{"to": "agent:*", "what": "dropped", "at": 1}]
    with edited(path, path.read_text(), yaml.safe_dump(entry)):
        status, out, _ = await pallas(root, "test", "lamps")
    assert status == 0
    assert "skipped  lamps" in out
    assert "faults: workers and remote agents get them live only: add --live --own" in out
    entry["faults"] = [{"to": "agent:clerk", "what": "dropped", "at": 1}]
    with edited(path, path.read_text(), yaml.safe_dump(entry)):
        status, _, err = await pallas(root, "test", "lamps")
    assert status == 2
    assert "faults[0].to: clerk answers in this fleet; faults are for workers and remote agents" in err


TALK = [
    {"ask": "hello", "recording": "hello.recording", "expect": {"answer": {"contains": "turn 1"}}},
    {"ask": "hello", "recording": "again.recording", "expect": {"answer": {"contains": "turn 2"}}},
    {"ask": "count lamps", "recording": "count.recording", "expect": {"answer": {"contains": "nine"}}},
]


@pytest.mark.slow
async def test_kept_turns_of_one_conversation_are_one_test(root: Path) -> None:
    path = root / "tests" / "agents" / "talk.yaml"
    swapped = [TALK[0], {**TALK[2], "expect": {}}, {**TALK[1], "ask": "goodbye"}]
    other = [*TALK[:2], {**TALK[2], "expect": {"answer": {"contains": "ten"}}}]
    try:
        path.write_text(yaml.safe_dump({"agent": "keeper", "turns": TALK}))
        status, out, err = await pallas(root, "test", "talk", "-o", "json")
        assert (status, err) == (0, "")
        (trial,) = json.loads(out)["tests"][0]["trials"]
        assert len(trial["runIds"]) == 3
        with edited(root / "agents" / "keeper.py", "You are keeper.", "You are Kees."):
            status, out, _ = await pallas(root, "test", "talk")
        assert (status, 'messages[0].content is "You are Kees."' in out) == (1, True), out
        assert "turn 1: recording: " in out
        for turns, said in ((other, "turn 3: answer.contains: 'ten'"), (swapped, "turn 3: ")):
            path.write_text(yaml.safe_dump({"agent": "keeper", "turns": turns}))
            status, out, _ = await pallas(root, "test", "talk")
            assert (status, said in out) == (1, True), out
            assert "turn 1:" not in out
    finally:
        path.unlink()


async def test_a_test_without_a_recording_is_skipped(root: Path) -> None:
    path = root / "tests" / "agents" / "bare.yaml"
    path.write_text("agent: clerk\nask: find lamps\n")
    try:
        status, out, _ = await pallas(root, "test", "bare")
    finally:
        path.unlink()
    assert status == 0
    assert "recording: it has none: run it with --live" in out


@pytest.mark.slow
async def test_pytest_runs_them(root: Path) -> None:
    status, out = await pytest_in(root, "--pallas", "tests", truly=True)
    assert status == 0, out
    assert "5 passed" in out
    bare = root / "tests" / "agents" / "bare.yaml"
    bare.write_text("agent: clerk\nask: find lamps\n")
    broken = root / "tests" / "agents" / "broken.yaml"
    try:
        with edited(root / "agents" / "clerk.py", "You are clerk.", "You are Clark."):
            status, out = await pytest_in(root, "--pallas", "tests", "-rs")
        assert status == 1
        assert "2 failed, 3 passed, 1 skipped" in out
        assert 'messages[0].content is "You are Clark."' in out
        assert "Traceback" not in out
        broken.write_text("agent: nobody\nask: Hi\n")
        status, out = await pytest_in(root, "--pallas", "tests")
        assert status == 2
        assert "broken.yaml:1: agent: nobody is not an agent of this project" in out
    finally:
        bare.unlink()
        broken.unlink(missing_ok=True)
    status, out = await pytest_in(root, "tests")
    assert (status, "no tests ran" in out) == (5, True)
    live = ("--pallas-live", "tests", "-k", "hello or seen")
    with edited(root / "agents" / "keeper.py", "You are keeper.", "You are Keeper."):
        status, out = await pytest_in(root, *live)
    assert (status, "1 failed, 1 passed" in out) == (1, True), out  # the shelf's program is gone
