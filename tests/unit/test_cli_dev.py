"""`pallas dev`: what it sets before it starts anything."""

import os
from pathlib import Path
from typing import Any

import pytest
from support.live import write_project

from pallas.cli.dev import DevOptions, dev
from pallas.cli.serve import serve
from pallas.telemetry.log.server_output import VARIABLE, is_logged


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command sets the variable for its process."""
    monkeypatch.setenv(VARIABLE, "")


@pytest.mark.parametrize(("chosen", "on"), [(None, True), ("0", False), ("1", True)])
def test_the_output_of_servers_is_logged_unless_the_user_says_no(
    chosen: str | None, on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, chosen or "")
    if chosen is None:
        del os.environ[VARIABLE]
    assert dev(DevOptions(tmp_path, serve=True)) == 2  # no project
    assert is_logged() is on


@pytest.mark.parametrize("is_named", [False, True])
def test_faults_are_not_served_without_a_flag(
    is_named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, {"desk": None})
    monkeypatch.chdir(root)
    file = root / ("other.yaml" if is_named else "faults.yaml")
    file.write_text("faults: [{to: gpt-5, what: 429, at: 1}]")
    given = file if is_named else None
    assert serve(root, faults=given) == 2
    assert dev(DevOptions(root, serve=True, faults=given)) == 2
    assert (
        capsys.readouterr().err.splitlines()
        == [
            f"{file.name}: faults would be injected into calls of models and tools; serve them with "
            "--allow-faults, or remove this file"
        ]
        * 2
    )
    file.write_text("faults: [{to: gpt-5, what: 429}]")
    assert serve(root, faults=given, allow_faults=True) == 2
    assert capsys.readouterr().err == (
        f"{file.name}:1: faults[0]: does not name the calls; add at: 1, or rate: 0.1\n"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"attach": "http://127.0.0.1:1", "faults": Path("faults.yaml")}, "leave it out with --attach"),
        ({"allow_faults": True}, "--allow-faults is for --serve only"),
    ],
)
def test_options_of_faults_that_do_not_go_together(
    options: dict[str, Any], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dev(DevOptions(tmp_path, **options)) == 2
    assert said in capsys.readouterr().err
