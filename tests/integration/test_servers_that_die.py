"""A stdio server that dies while nobody asks anything."""

import logging
import os
import signal
from pathlib import Path

import pytest
from support.live import ECHO, agent_module, running, write_project
from support.processes import below
from support.waiting import until

from pallas.executors.fastagent import instance_servers


@pytest.mark.parametrize("isolation", ["none", pytest.param("process", marks=pytest.mark.slow)])
async def test_it_is_started_again_without_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, isolation: str
) -> None:
    if isolation == "none":  # a process of its own waits as long as it does for users
        monkeypatch.setattr(instance_servers, "LOOK_SECONDS", 0.1)
    root = write_project(
        tmp_path,
        {"desk": agent_module("desk", ("echo",))},
        config=ECHO,
        keys={"desk": {"isolation": isolation}},
    )
    with caplog.at_level(logging.INFO):
        async with running(root):
            (server,) = await until(lambda: below(os.getpid(), "echo_server.py"))
            os.kill(server.pid, signal.SIGKILL)
            await until(
                lambda: {each.pid for each in below(os.getpid(), "echo_server.py")} - {server.pid}, timeout=60
            )
            said = lambda: [each.getMessage() for each in caplog.records]  # noqa: E731
            await until(lambda: "desk: server echo is connected again" in said(), timeout=60)
            assert "desk: server echo is missing: cannot be reached" in said()
