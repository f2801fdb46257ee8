"""`pallas console` as a program: what it does with a pipe, and with a project that has a mistake."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Timer
from typing import Any

import httpx2
import pytest
from support import pallas_process
from support.consoles import project
from support.served import served
from support.waiting import until

ADD = b'@add {"a": 40, "b": 2}\n'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project(tmp_path_factory.mktemp("command") / "p")


@contextmanager
def started(root: Path, **more: Any) -> Iterator[Popen[bytes]]:
    environment = {**os.environ, "XDG_STATE_HOME": str(root.parent / "state"), "NO_COLOR": "1"}
    given = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **more}
    with pallas_process.start("console", str(root), env=environment, **given) as console:
        late = Timer(120, console.kill)
        late.start()
        try:
            yield console
        finally:
            late.cancel()


@pytest.mark.slow
def test_the_command_serves_a_pipe_and_ends_with_it(root: Path) -> None:
    # HC-26
    with started(root) as console:
        out, err = console.communicate(ADD + b"/quit\n")
    assert console.returncode == 0, err.decode()
    assert b"42" in out
    assert b"Traceback" not in err


def test_what_a_handler_prints_is_shown_and_logged(root: Path) -> None:
    # UN-6
    with started(root) as console:
        out, err = console.communicate(ADD + b"/quit\n")
    assert console.returncode == 0, err.decode()
    assert out.decode().splitlines() == ['{"value": 42}']
    assert "adding 40\n" in err.decode()
    (log,) = (root.parent / "state").rglob("pallas.log")
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    printed = [each for each in records if each["message"] == "adding 40"]
    assert (printed[-1]["logger"], printed[-1]["agent"]) == ("pallas.agents.add", "add")


@pytest.mark.slow
@pytest.mark.parametrize("said", [ADD + b'{"a": 1, \\\n"b": 2}', b""])
def test_the_command_serves_a_file_and_ends_with_it(root: Path, tmp_path: Path, said: bytes) -> None:
    # HC-26
    path = tmp_path / "lines"
    path.write_bytes(said)
    with path.open("rb") as lines, started(root, stdin=lines) as console:
        out, err = console.communicate()
    assert console.returncode == 0, err.decode()
    assert out.decode().splitlines() == (['{"value": 42}', '{"value": 3}'] if said else [])


@pytest.mark.slow
def test_an_input_that_was_closed_before_is_at_its_end(root: Path) -> None:
    # HC-26
    with started(root, stdin=None, preexec_fn=lambda: os.close(0)) as console:
        _, err = console.communicate()
    assert console.returncode == 0, err.decode()


@pytest.mark.slow
def test_it_ends_without_a_word_where_nobody_reads_its_answers(root: Path) -> None:
    with started(root) as console:
        assert console.stdin is not None
        assert console.stdout is not None
        assert console.stderr is not None
        console.stdout.close()
        console.stdin.write(ADD)
        console.stdin.flush()  # and there may be more
        said = console.stderr.read()
        console.stdin.close()
        assert console.wait(120) == 1
    assert b"failed" not in said


@pytest.mark.slow
def test_an_interrupt_stops_what_is_asked_and_the_next_one_leaves(root: Path) -> None:
    # HC-26
    waits = root / "waits"
    waits.unlink(missing_ok=True)
    with started(root) as console:
        assert console.stdin is not None
        assert console.stdout is not None
        assert console.stderr is not None
        console.stdin.write(b'@add {"a": 1, "b": 777}\n')
        console.stdin.flush()
        asyncio.run(until(waits.exists, timeout=60))
        console.send_signal(signal.SIGINT)
        while b"add was stopped" not in (line := console.stderr.readline()):
            assert line
        console.stdin.write(ADD)
        console.stdin.flush()
        assert console.stdout.readline() == b'{"value": 42}\n'
        while not (line := console.stderr.readline()).endswith(b"add:\n"):
            assert line
        assert console.stderr.read(6) == b"@add> "
        console.send_signal(signal.SIGINT)
        console.stderr.read()
        console.stdin.close()
        assert console.wait(120) == 130


def test_the_command_says_what_is_wrong_with_a_project(tmp_path: Path) -> None:
    done = pallas_process.run(
        "console", str(tmp_path), stdin=PIPE, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"agents.yaml" in done.stderr


@pytest.mark.slow
async def test_a_fleet_that_serves_the_project_is_not_waited_for_but_pointed_at(tmp_path: Path) -> None:
    own = project(tmp_path / "p")
    with served(own, XDG_STATE_HOME=str(tmp_path / "state")) as fleet:
        await until(lambda: httpx2.get(f"{fleet.registry}/healthz", timeout=60).is_success, timeout=60)
        with started(own) as console:
            _, err = await asyncio.to_thread(console.communicate)
    assert console.returncode == 1
    assert b"is in use" in err
    assert b"runs already: ask it with `pallas chat AGENT`, or stop it first" in err
