"""`pallas` as it is serves its API to the user who started it: not to other users, not to the network."""

import os
import socket
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from support import pallas_process
from support.live import write_project
from support.served import Served, served

from pallas.surfaces.control.token_file import find_tokens

HANDLER = '''
async def answer(request):
    """Answers in capital letters."""
    return request.text.upper()
'''
OTHER_USER = 65_534
PATHS = ("/agents", "/threads", "/whoami", "/fleet/snapshot", "/fleet/log")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plain")
    for each in (folder, *folder.parents):  # only the folder of the token is in the way of others
        if each.owner() == Path("~").expanduser().owner() and str(each).startswith(str(folder.parents[1])):
            each.chmod(0o755)
    entry = {"kind": "handler", "handler": "hands:answer", "module": None}
    root = write_project(folder / "desk", {"loud": None}, keys={"loud": entry}, files={"hands.py": HANDLER})
    environment = {"PALLAS_DATABASE_URL": f"sqlite:///{folder}/ledger.sqlite3"}
    with served(root, plain=True, XDG_STATE_HOME=str(folder / "state"), **environment) as running:
        yield running


@pytest.fixture
async def token(fleet: Served) -> str:
    await fleet.says("loud: ready")
    (kept,) = find_tokens(fleet.entries["registry_port"], fleet.root.parent / "state" / "pallas" / "control")
    return kept.token


async def _ask(origin: str, path: str, token: str = "", **body: Any) -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    port = origin.rpartition(":")[2]
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        return await http.request(
            "POST" if body else "GET",
            f"{origin}/api/v1{path}",
            headers={"host": f"127.0.0.1:{port}", **headers},
            json=body or None,
        )


async def test_without_the_token_a_caller_on_the_same_machine_is_refused(fleet: Served, token: str) -> None:
    said = await _ask(fleet.registry, "/agents/loud/chat", token, message="hello")
    assert (said.status_code, said.json()["text"]) == (200, "HELLO")
    for path in PATHS:
        for wrong in ("", token[:-1]):
            answer = await _ask(fleet.registry, path, wrong)
            assert answer.status_code == 401, path
            assert "loud" not in answer.text
    refused = await _ask(fleet.registry, "/agents/loud/chat", message="hello")
    assert refused.status_code == 401
    assert refused.json()["data"]["closed"] is True
    assert "the user who started it" in refused.json()["error"]
    assert "PALLAS_CONTROL_TOKEN" in refused.json()["error"]


async def test_from_the_network_the_right_token_is_refused_too(fleet: Served, token: str) -> None:
    addresses = [
        each.address
        for interface in psutil.net_if_addrs().values()
        for each in interface
        if each.family is socket.AF_INET and not each.address.startswith("127.")
    ]
    if not addresses:
        pytest.skip("this machine has no address but loopback")
    origin = f"http://{addresses[0]}:{fleet.entries['registry_port']}"
    for path in PATHS:
        assert (await _ask(origin, path, token)).status_code == 401, path
    assert (await _ask(origin, "/agents/loud/chat", token, message="hello")).status_code == 401
    assert (await _ask(fleet.registry, "/agents", token)).status_code == 200


async def test_no_other_user_can_read_the_token(fleet: Served, token: str) -> None:
    (path,) = (fleet.root.parent / "state" / "pallas" / "control").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert token in path.read_text()
    elsewhere = fleet.root.parent / "home of another user"
    done = _typed(fleet, elsewhere)
    assert done.returncode == 1
    assert "closed to all but the user who started it" in done.stderr
    if os.getuid() == 0:
        assert "Permission denied" in _read_by_another_user(path)
    assert _typed(fleet, fleet.root.parent / "state").returncode == 0
    assert token not in fleet.log.read_text() + "".join(fleet.out + fleet.err)


def _read_by_another_user(path: Path) -> str:
    done = subprocess.run(
        ["cat", path], user=OTHER_USER, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode != 0
    return done.stderr


def _typed(fleet: Served, state: Path) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
    return pallas_process.run(
        "get",
        "agents",
        cwd=fleet.root,
        env={**clean, "XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
