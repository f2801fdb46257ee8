"""`pallas ready`: whether a fleet on this machine takes runs, for scripts and containers."""

import asyncio
import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support import pallas_process
from support.certificates import authority
from support.live import agent_module, write_project
from support.waiting import until

from pallas.cli.app import run
from pallas.config import load_project


def asked(root: Path, *options: str) -> int:
    return run(["ready", str(root), *options])


def test_where_nothing_answers_it_says_where_it_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, {"one": None})
    assert asked(root) == 1
    port = load_project(root).registry_port
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"test: nothing answers at 127.0.0.1:{port} (Connection refused)\n"


def test_a_project_with_mistakes_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(tmp_path) == 2
    assert "agents.yaml" in capsys.readouterr().err


async def test_it_waits_until_the_fleet_is_ready_and_names_what_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = agent_module("two") + "\nraise ValueError('no')\n"
    root = write_project(tmp_path / "project", {"one": None, "two": broken}, top={"bind": "127.0.0.1"})
    waiting = asyncio.create_task(asyncio.to_thread(asked, root, "--wait", "60"))
    with (tmp_path / "out").open("w") as out:
        fleet = await pallas_process.start_async(
            *("--serve", "--project", str(root)),
            stdout=out,
            stderr=out,
            env={**os.environ, "PALLAS_LOG_FILE": str(tmp_path / "pallas.log")},
        )
    try:
        assert await waiting == 0
        assert capsys.readouterr().out == "test: ready: two error\n"
        fleet.terminate()
        await until(lambda: asked(root) == 1, timeout=30)
    finally:
        if fleet.returncode is None:
            fleet.kill()
        await fleet.wait()


def test_a_port_that_speaks_tls_is_told_apart_from_one_that_nobody_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_project(tmp_path / "p", {"one": None})
    port = load_project(root).registry_port
    with socket.create_server(("127.0.0.1", port)) as server:
        closing = threading.Thread(target=_close_each, args=(server,), daemon=True)
        closing.start()
        assert asked(root) == 1
        err = capsys.readouterr().err
        assert f"test: what listens at 127.0.0.1:{port} gave no answer in HTTP" in err
        assert "set PALLAS_SSL_CERTFILE" in err
        certfile, keyfile = authority(tmp_path).issue(tmp_path)
        monkeypatch.setenv("PALLAS_SSL_CERTFILE", str(certfile))
        monkeypatch.setenv("PALLAS_SSL_KEYFILE", str(keyfile))
        assert asked(root) == 1
        assert capsys.readouterr().err == f"test: what listens at 127.0.0.1:{port} speaks no TLS\n"


def _close_each(server: socket.socket) -> None:
    """As a server of TLS does with who speaks none, and the other way round."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
