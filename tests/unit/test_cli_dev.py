"""`pallas dev`: what it sets before it starts anything."""

import os
from pathlib import Path

import pytest

from pallas.cli.dev import DevOptions, dev
from pallas.telemetry.log.server_output import VARIABLE, is_logged


@pytest.mark.parametrize(("chosen", "on"), [(None, True), ("0", False), ("1", True)])
def test_the_output_of_servers_is_logged_unless_the_user_says_no(
    chosen: str | None, on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, chosen or "")
    if chosen is None:
        del os.environ[VARIABLE]
    assert dev(DevOptions(tmp_path, serve=True)) == 2  # no project
    assert is_logged() is on
