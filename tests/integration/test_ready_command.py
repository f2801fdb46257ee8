"""`pallas ready`: whether a fleet on this machine takes runs, for scripts and containers."""

import asyncio
import json
import os
import re
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from support import pallas_process
from support.certificates import authority
from support.live import agent_module, running, write_project
from support.waiting import until

from pallas.cli.app import run
from pallas.config import load_project

SAMPLE = Path(__file__).parents[2] / "sample_project"


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


@pytest.mark.slow
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
        assert f"test: what listens at 127.0.0.1:{port} did not answer with HTTP" in err
        assert "set PALLAS_SSL_CERTFILE" in err
        certfile, keyfile = authority(tmp_path).issue(tmp_path)
        monkeypatch.setenv("PALLAS_SSL_CERTFILE", str(certfile))
        monkeypatch.setenv("PALLAS_SSL_KEYFILE", str(keyfile))
        assert asked(root) == 1
        assert capsys.readouterr().err == f"test: what listens at 127.0.0.1:{port} does not use TLS\n"


def serve_readyz(server: socket.socket, body: bytes) -> None:
    """Answer each request as the fleet of somebody does."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)


@pytest.mark.parametrize("more", [{}, {"project": "0123456789ab", "pid": 4711}])
def test_a_fleet_of_another_project_on_that_port_is_not_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, object]
) -> None:
    root = write_project(tmp_path, {"one": None})
    port = load_project(root).registry_port
    body = json.dumps({"status": "ready", "agents": {"one": "ready"}, **more}).encode()
    with socket.create_server(("127.0.0.1", port)) as server:
        threading.Thread(target=serve_readyz, args=(server, body), daemon=True).start()
        assert asked(root) == 1
        out, err = capsys.readouterr()
    assert out == ""
    assert f"what answers at 127.0.0.1:{port} is the fleet of another project (process " in err
    assert "choose another port in agents.yaml" in err


async def test_a_fleet_says_whose_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = write_project(tmp_path / "a", {"one": None})
    other = write_project(tmp_path / "b", {"one": None})
    (other / "agents.yaml").write_text((root / "agents.yaml").read_text())
    async with running(root):
        assert await asyncio.to_thread(asked, root) == 0
        assert await asyncio.to_thread(asked, other) == 1
    assert "is the fleet of another project" in capsys.readouterr().err


def test_a_new_project_gets_no_port_of_the_sample_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(["init", str(tmp_path / "new")]) == 0

    def ports(root: Path) -> set[int]:
        texts = [path.read_text() for path in root.glob("*.yaml")]
        return {int(each) for text in texts for each in re.findall(r"\b24\d{3}\b", text)}

    assert ports(tmp_path / "new")
    assert ports(tmp_path / "new").isdisjoint(ports(SAMPLE))


def _close_each(server: socket.socket) -> None:
    """As a server of TLS does with who speaks none, and the other way round."""
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
