"""Two fleets on the same ports: the second says so and ends, the first does not notice."""

import asyncio
import os
from pathlib import Path

import pytest
from support.live import ERAS, write_project
from support.served import served, text_of
from support.waiting import until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.fleet.ports import PortClaims
from pallas.model import Fault, FaultType
from pallas.surfaces.port_holder import holder_of, process_line

SLOW = """
import pathlib, time
from fast_agent import FastAgent

pathlib.Path("importing").write_text("now")
while not pathlib.Path("go").exists():
    time.sleep(0.01)
fast = FastAgent("one")


@fast.agent(name="one", instruction="You are one.")
async def main() -> None: ...
"""


@pytest.mark.slow
async def test_the_second_fleet_names_ports_agents_and_who_holds_them(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None, "two": None}, top={"bind": "127.0.0.1"})
    with served(root) as first:
        await first.says("] running")
        async with first.client("one", ERAS[0]) as client:
            with served(root, log=tmp_path / "second.log") as second:
                assert await second.ended() == 2
                held = f"is in use; stop the program that holds it (process {first.process.pid}, "
                lines = [line for line in second.err if held in line]
                assert len(lines) == len(second.err) == 3
                ports = [entry["port"] for entry in first.entries["agents"].values()]
                for where, port, line in zip(("4: agent one", "7: agent two"), ports, lines, strict=False):
                    assert line.startswith(f"agents.yaml:{where}: port {port} ")
                assert f"agents.yaml: registry: port {first.entries['registry_port']} " in lines[2]
                assert f"in {root})" in lines[0]
                assert second.out == []  # nothing was half started, nothing announced
            assert not (await client.call_tool("send_message", {"message": "hi"})).is_error
        assert (await first.get("/readyz")).status_code == 200


@pytest.mark.slow
async def test_a_fleet_that_is_still_starting_keeps_its_ports(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "p",
        {"one": SLOW, "two": None},
        keys={"two": {"depends_on": ["one"]}},
        top={"bind": "127.0.0.1"},
    )
    shared = yaml_port(root, "two")
    other = write_project(tmp_path / "q", {"three": None}, keys={"three": {"port": shared}})
    with served(root) as first:
        await until((root / "importing").exists, timeout=60)
        with served(other) as second:  # nobody listens on that port yet
            assert await second.ended() == 2
            (line,) = second.err
            assert f"port {shared} is in use by another fleet that is starting" in line
            assert f"(process {first.process.pid}, " in line
        (root / "go").write_text("")
        await first.says("] running")
        async with first.client("two", ERAS[1]) as client:
            assert text_of(await client.call_tool("send_message", {"message": "hi"})) == "hi"
        with served(other) as third:  # now somebody does
            assert await third.ended() == 2
            assert f"port {shared} is in use; stop the program that holds it" in third.err[0]


def yaml_port(root: Path, agent: str) -> int:
    import yaml

    return int(yaml.safe_load((root / "agents.yaml").read_text())["agents"][agent]["port"])


def test_a_fleet_that_did_not_get_its_ports_holds_none(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"one": None})
    project = load_project(root, {**os.environ})
    others = PortClaims()
    others.take("0.0.0.0", [(project.registry_port, "other")])
    fleet = Fleet(project, dev=True)
    try:
        with pytest.raises(Fault, match="another fleet that is starting") as told:
            fleet.reserve()
        assert told.value.type is FaultType.CONFIG
        others.release()
        fleet.reserve()  # all are free again
    finally:
        others.release()
        asyncio.run(fleet.stop())
    again = PortClaims()
    again.take("127.0.0.1", [(project.registry_port, "again")])  # released with the fleet
    again.release()


def test_who_holds_a_port_is_told_without_what_is_secret_in_its_command(tmp_path: Path) -> None:
    import subprocess
    import sys

    program = (
        "import socket, time; s = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "--token", "hidden-from-everyone-77"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        told = holder_of(int(process.stdout.readline()))
        assert told.startswith(f"process {process.pid}, ")
        assert told.endswith(f", in {tmp_path}")
        assert "hidden-from-everyone" not in process_line(process.pid)
    finally:
        process.kill()
        process.communicate()
    assert holder_of(1) == ""
