"""A project in a folder whose name is not UTF-8 is one like any other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pallas.cli.project_ports import choose_ports
from pallas.config import load_project
from pallas.json_file import JsonFile
from pallas_tui.chat.tab_store import SavedTabs


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/pr\xffj"))
    try:
        path.mkdir()
    except OSError:
        pytest.skip("this file system takes only names in UTF-8")
    path.rmdir()
    return path


@pytest.mark.slow
def test_such_a_project_is_written_checked_and_told(odd: Path, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "PYTHONIOENCODING": "utf-8:strict",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    for command in ("init", "check"):
        done = subprocess.run(
            [sys.executable, "-m", "pallas.server", command, odd],
            capture_output=True,
            env=environment,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if command == "init":
            assert os.fsencode(odd) in done.stdout
    assert load_project(odd).name == "pr\ufffdj"


def test_ports_and_tabs_of_such_a_project_are_kept(
    odd: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    odd.mkdir()
    first = choose_ports(odd)
    found, problem = JsonFile(tmp_path / "state" / "pallas" / "ports.json").load()
    assert (found, problem) == ({str(odd): first}, "")
    file = JsonFile(tmp_path / "tabs.json")
    file.save({str(odd): ["a"]})
    assert file.load() == ({str(odd): ["a"]}, "")
    (tmp_path / "tabs.json").read_text("utf-8")  # it is UTF-8 all the same
    assert SavedTabs(file, str(odd)) is not None
