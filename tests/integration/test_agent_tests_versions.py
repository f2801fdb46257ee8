"""The same tests through two versions of a project: `pallas test --against`."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.projects import edited
from support.recorded import close_shelf, recorded_project
from support.recorded_runs import asked
from support.served import served
from support.surfaces import command

pytestmark = [
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.usefixtures("forked_children"),
]


def git(root: Path, *words: str) -> None:
    own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", *own, *words], cwd=root, check=True, capture_output=True, timeout=60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project below the top of a repository, with two tests that are not committed."""
    root = recorded_project(tmp_path / "repository" / "p")
    (root / ".gitignore").write_text("tests\n")
    git(tmp_path / "repository", "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "one")
    tests = root / "tests" / "agents"
    tests.mkdir(parents=True)
    (tests / "seen.yaml").write_text(
        "agent: clerk\nask: find lamps\nexpect: {calls: {order: [shelf__find, shelf__look]}}\n"
    )
    (tests / "kept.yaml").write_text("agent: keeper\nask: count lamps\nexpect: {answer: {contains: nine}}\n")
    return root


async def against(root: Path, version: str, *more: str) -> tuple[int, str, str]:
    return await command("test", "--against", version, *more, "-p", str(root))


@pytest.mark.slow
async def test_a_version_that_is_worse_is_told_and_ends_with_1(root: Path, tmp_path: Path) -> None:
    clean = (root / "model.yaml").read_text()
    (root / "model.yaml").write_text(clean.replace("text: three lamps, system", "text: four lamps, system"))
    status, out, err = await against(root, "HEAD", "--live", "--record", str(tmp_path / "runs"))
    assert (status, err) == (1, "")
    lines = out.splitlines()
    assert lines[0].split() == ["TEST", "HEAD", "NOW", "TOKENS", "COST", "SECONDS"]
    rows = {line.split()[0]: line.split()[1:5] for line in lines[1:3]}
    assert rows == {"kept": ["1/1", "passed", "1/1", "passed"], "seen": ["1/1", "passed", "0/1", "failed"]}
    assert [line for line in lines if line.startswith("seen: they differ first at ")]
    assert "1 test of 2 differ" in out
    assert not [line for line in lines if line.startswith("kept: ")]
    assert (tmp_path / "runs" / "before" / "seen" / "recording.yaml").exists()
    assert (tmp_path / "runs" / "now" / "seen" / "recording.yaml").exists()
    # The other way round it is better now.
    copy = shutil.copytree(root, tmp_path / "worse")
    (root / "model.yaml").write_text(clean)
    status, out, _ = await against(root, str(copy), "seen", "--live", "--repeat", "2")
    assert status == 0
    assert "0/2 failed" in out
    assert "2/2 passed" in out
    assert "kept" not in out


@pytest.mark.slow
async def test_recorded_tests_that_would_go_differently_are_told_without_a_model(
    root: Path, tmp_path: Path
) -> None:
    tests = root / "tests" / "agents"
    with served(root) as fleet:
        await fleet.says("] running")
        for name, agent, text in (("seen", "clerk", "find lamps"), ("kept", "keeper", "count lamps")):
            run = await asked(fleet, text, agent)
            assert (await command("keep", run, name, "--force", "-p", str(root)))[0] == 0
    runs = shutil.move(tests / "kept.recording", tmp_path / "old.recording")
    shutil.copytree(runs, tests / "kept.recording")
    close_shelf(root)  # no tool can be asked, and no model
    status, out, err = await against(root, "HEAD")
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "TEST   HEAD     NOW",
        "kept   passed   passed",
        "seen   passed   passed",
        "no test differs",
    ]
    summary = tmp_path / "summary.md"
    with edited(root / "agents" / "clerk.py", "You are clerk.", "You are Clark."):
        status, out, err = await against(root, "HEAD", "--summary", str(summary))
        assert (status, err) == (1, "")
        lines = out.splitlines()
        assert lines[2] == "seen   passed   failed"
        assert lines[3].startswith("seen: now: recording: ")
        assert 'messages[0].content is "You are Clark."' in lines[3]
        assert lines[4:] == ["1 test of 2 differ"]
        assert "## Agent tests against HEAD: 1 test of 2 differ\n" in summary.read_text()
        assert "| seen | passed | failed |" in summary.read_text()
        # The other version is as this one, and both differ from the recording.
        copy = shutil.copytree(root, tmp_path / "copy")
        status, out, _ = await against(root, str(copy), "-o", "json")
        found = {each["name"]: each for each in json.loads(out)["tests"]}
        assert status == 0
        assert (found["seen"]["before"]["verdict"], found["seen"]["now"]["verdict"]) == ("failed", "failed")
        assert found["seen"]["difference"] == []
    status, _, err = await against(root, "HEAD", "--repeat", "2")
    assert (status, "are for --live" in err) == (2, True)

    # A recording in place of a version: the tests that ask its question judge it.
    test = tests / "kept.yaml"
    with edited(test, "contains:", "lacks:"):
        status, out, err = await against(root, str(runs))
    assert (status, err) == (0, "")
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["TEST", "RECORDING", "NOW"],
        ["kept", "failed", "failed"],
    ]
    with edited(root / "agents" / "keeper.py", "You are keeper.", "You are Keeper."):
        status, out, _ = await against(root, str(runs))
    assert status == 1
    assert "kept   passed      failed" in out
    assert "kept: now: recording: " in out
    assert "kept: they differ first at " in out
    status, _, err = await against(root, str(runs), "seen")
    assert (status, "no test asks keeper what was asked there: count lamps" in err) == (2, True)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("nowhere", "pallas test: --against nowhere: no folder of a project, and no revision: fatal: "),
        ("-o/nowhere", "pallas test: --against -o/nowhere: name a revision of git, or a folder"),
    ],
)
async def test_a_version_that_is_not_there_is_said(root: Path, version: str, said: str) -> None:
    status, out, err = await command("test", f"--against={version}", "-p", str(root))
    assert (status, out) == (2, "")
    assert err.startswith(said)


async def test_a_project_without_tests_has_nothing_to_compare(root: Path) -> None:
    shutil.rmtree(root / "tests")
    status, out, err = await against(root, "HEAD")
    assert (status, out) == (2, "")
    assert err.startswith("pallas test: there is no folder tests/agents in ")


@pytest.mark.slow
async def test_tests_of_another_version_that_are_elsewhere_stay_there(root: Path, tmp_path: Path) -> None:
    other, elsewhere = tmp_path / "other", tmp_path / "elsewhere"
    shutil.copytree(root, other)
    shutil.move(other / "tests", elsewhere)
    (other / "tests").symlink_to(elsewhere)
    (root / "tests" / "agents" / "more").mkdir()
    (root / "tests" / "agents" / "seen.yaml").rename(root / "tests" / "agents" / "more" / "seen.yaml")
    status, out, err = await against(
        root, str(other), "more/seen", "--exact", "--live", "--record", str(tmp_path / "runs")
    )
    assert (status, err) == (0, "")
    assert "more/seen" in out
    assert sorted(path.name for path in (elsewhere / "agents").iterdir()) == ["kept.yaml", "seen.yaml"]
    assert (tmp_path / "runs" / "now" / "more__seen" / "recording.yaml").exists()
