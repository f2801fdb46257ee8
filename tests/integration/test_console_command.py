"""`pallas console` as a program: what it does with a pipe, and with a project that has a mistake."""

import os
import sys
from pathlib import Path
from subprocess import PIPE, run

from support.consoles import project


def test_the_command_serves_a_pipe_and_ends_with_it(tmp_path: Path) -> None:
    # HC-26
    root = project(tmp_path / "p")
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "1"}
    done = run(
        [sys.executable, "-m", "pallas.server", "console", str(root)],
        input=b'@add {"a": 40, "b": 2}\n/quit\n',
        capture_output=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"42" in done.stdout
    assert b"Traceback" not in done.stderr


def test_the_command_says_what_is_wrong_with_a_project(tmp_path: Path) -> None:
    done = run(
        [sys.executable, "-m", "pallas.server", "console", str(tmp_path)],
        stdin=PIPE, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"agents.yaml" in done.stderr
