"""A served fleet as a service of systemd: what it says on the notify socket, from the start to the end."""

import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import raw_client
from support.live import BLOCKING, ECHO, ERAS, agent_module, write_project
from support.offline import offline_project
from support.served import served
from support.waiting import until

Said = list[dict[str, str]]


@contextmanager
def manager(address: Path) -> Iterator[tuple[socket.socket, Said]]:
    """The socket of a service manager, and what came so far, newest last: call ``hear`` to have it read."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(address))
        sock.setblocking(False)
        yield sock, []


def hear(sock: socket.socket, said: Said) -> Said:
    """What was said so far, a mapping for each message."""
    while True:
        try:
            raw = sock.recv(65_536).decode("utf-8")
        except BlockingIOError:
            return said
        said.append({name: value for name, _, value in (line.partition("=") for line in raw.split("\n"))})


def environment_of(pid: int) -> bytes:
    """The environment that a process was started with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


@pytest.mark.slow
async def test_systemd_hears_of_start_reload_and_end_and_children_hear_nothing(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "p",
        {"one": agent_module("one", ("echo",)), "bad": "raise RuntimeError('no')\n"},
        top={"bind": "127.0.0.1"},
        keys={"bad": {"restart": "never"}},
        config=ECHO,
    )
    address = tmp_path / "notify"
    with (
        manager(address) as (sock, said),
        served(root, truly=True, NOTIFY_SOCKET=str(address), WATCHDOG_USEC="400000") as fleet,
    ):
        await until(lambda: any("READY" in each for each in hear(sock, said)), timeout=60)
        ready = next(each for each in said if "READY" in each)
        assert ready == {"READY": "1", "STATUS": "1 ready, 1 error"}
        before = said[: said.index(ready)]
        assert any(each.get("STATUS", "").startswith("starting: ") for each in before)
        await until(lambda: sum(each == {"WATCHDOG": "1"} for each in hear(sock, said)) > 2)

        children = fleet.children()
        assert children  # the stdio server
        for environment in map(environment_of, children):
            assert b"NOTIFY_SOCKET" not in environment
            assert b"WATCHDOG" not in environment

        said.clear()
        fleet.send(signal.SIGHUP)
        await until(lambda: any("READY" in each for each in hear(sock, said)))
        news = [each for each in said if "WATCHDOG" not in each]
        assert news[0]["RELOADING"] == "1"
        assert int(news[0]["MONOTONIC_USEC"]) > 0
        assert news[-1]["READY"] == "1"

        said.clear()
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
        ending = [each for each in hear(sock, said) if "STOPPING" in each]
        assert int(ending[0]["EXTEND_TIMEOUT_USEC"]) >= 35_000_000
        assert ending[0]["STATUS"].startswith("draining")


@pytest.mark.slow
async def test_the_watchdog_hears_nothing_while_an_agents_code_blocks_the_loop(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    script = f"""
rules:
  - when: {{last: user}}
    call: [{{tool: ponder, arguments: {{gate: "{gate}"}}}}]
  - say: done
"""
    root = offline_project(tmp_path / "p", {"slow": BLOCKING}, script, top={"bind": "127.0.0.1"})
    address = tmp_path / "notify"
    with (
        manager(address) as (sock, said),
        served(root, NOTIFY_SOCKET=str(address), WATCHDOG_USEC="400000") as fleet,
    ):
        await fleet.says("] running")
        await until(lambda: {"WATCHDOG": "1"} in hear(sock, said))
        writer = await raw_client.call(fleet.url("slow"), ERAS[0], "block")
        await fleet.says("slow blocks the event loop of all agents at agents/slow.py")
        hear(sock, said).clear()
        sock.settimeout(0.8)  # subject: nothing comes in twice the interval that systemd was promised
        try:
            heard = sock.recv(100)
        except TimeoutError:
            heard = b""
        assert heard == b""
        sock.setblocking(False)
        gate.touch()
        await until(lambda: {"WATCHDOG": "1"} in hear(sock, said))
        writer.transport.abort()
        fleet.send(signal.SIGTERM)
        assert await fleet.ended() == 0
