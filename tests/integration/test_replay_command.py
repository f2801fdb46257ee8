"""`pallas replay`: what it prints, and its exit status."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import pallas_process
from support.recorded import PICTURE, close_shelf, recorded_project
from support.replayed import FOLDER, recorded

from pallas.model import Image, Recording
from pallas.recordings.recording_folder import read
from pallas.recordings.run_diff import diff

LONG = 120.0


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = recorded_project(tmp_path_factory.mktemp("replayed") / "p")
    recording = asyncio.run(recorded(root, "lead", "How many?", images=(Image(PICTURE, "image/png"),)))
    assert isinstance(recording, Recording)
    close_shelf(root)
    yield root


def replay(root: Path, *options: str, folder: str = FOLDER) -> subprocess.CompletedProcess[Any]:
    arguments = ("replay", folder, *options)
    return pallas_process.run(*arguments, cwd=root, capture_output=True, text=True, timeout=LONG)


@pytest.mark.slow
def test_a_replay_shows_its_runs_and_steps_and_that_they_are_the_same(project: Path) -> None:
    done = replay(project)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "lead: How many?"
    assert "clerk: find lamps" in lines
    assert any(line.split() == ["2", "tool", "shelf__find", "done"] for line in lines)
    assert "All in all: three lamps, seen" in lines
    assert lines[-1].startswith("the same as the recording: 3 runs, 10 steps, ")
    assert done.stderr == ""


@pytest.mark.slow
def test_the_document_has_the_same_in_json(project: Path) -> None:
    done = replay(project, "-o", "json", "--speed", "recorded")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"].startswith("the same as the recording: 3 runs, 10 steps, ")
    assert (document["same"], document["miss"], document["difference"]) == (True, None, None)
    assert document["answer"].startswith("All in all")
    assert {each["agent"]: len(each["steps"]) for each in document["runs"]} == {
        "lead": 4,
        "clerk": 5,
        "keeper": 1,
    }


@pytest.mark.slow
def test_a_replay_is_recorded_on_demand_and_compared(project: Path) -> None:
    for name in ("replayed", "replayed.tar"):
        done = replay(project, "--into", name)
        assert done.returncode == 0, done.stdout + done.stderr
        found = read(project / name)
        assert [each.agent for each in found.runs] == [each.agent for each in read(project / FOLDER).runs]
        difference = diff(read(project / FOLDER), found)
        assert difference.is_same
        assert difference.versions == ()
        assert all(each.version is not None and each.version.instruction for each in found.runs)
    (project / "other").mkdir()
    (project / "other" / "mine.txt").write_text("mine")
    refused = replay(project, "--into", "other")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "there is something else in it; choose another folder" in refused.stderr


@pytest.mark.slow
def test_a_miss_and_a_difference_have_status_1(project: Path, tmp_path: Path) -> None:
    root = tmp_path / "p"
    shutil.copytree(project, root)
    module = root / "agents" / "keeper.py"
    module.write_text(module.read_text("utf-8").replace("You are keeper.", "You are Kim."), "utf-8")
    missed = replay(root)
    assert missed.returncode == 1
    assert 'keeper is not in the recording: messages[0].content is "You are Kim."' in missed.stdout
    assert json.loads(replay(root, "-o", "json").stdout)["miss"].startswith("replay: the model request")
    shutil.copy(project / "agents" / "keeper.py", module)
    script = root / "model.yaml"
    script.write_text(script.read_text("utf-8").replace("I keep nine", "I keep ten"), "utf-8")
    differs = replay(root, "--models", "live", "-o", "json")
    assert differs.returncode == 1
    assert json.loads(differs.stdout)["difference"]["text"].startswith("step 1 of keeper: another answer of")


@pytest.mark.parametrize(
    ("options", "folder", "words"),
    [
        (("--models", "both"), FOLDER, "--models is both; allowed: replay or live"),
        (("--tools", "shelve=live"), FOLDER, "there is no MCP server shelve; there are"),
        (("--tools", "shelf=now"), FOLDER, "--tools shelf is now; allowed: replay or live"),
        ((), "nowhere", "nowhere: there is no such folder or archive"),
        ((), "agents", "agents: no recording, for it has no recording.yaml"),
    ],
)
def test_what_cannot_be_replayed_has_status_2_and_says_why(
    project: Path, options: tuple[str, ...], folder: str, words: str
) -> None:
    done = replay(project, *options, folder=folder)
    assert done.returncode == 2
    assert done.stdout == ""
    assert words in done.stderr
    assert "Traceback" not in done.stderr
