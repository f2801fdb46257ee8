"""Start order, readiness, failure isolation and stopping of a real fleet."""

import gc
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Any

import httpx2
import psutil
import pytest
import yaml
from support import pallas_process
from support.live import (
    ECHO,
    ERAS,
    agent_module,
    all_ready,
    ask,
    ask_agent,
    client,
    control,
    running,
    write_project,
)
from support.ports import free_ports, is_free
from support.waiting import poll, until

from pallas.config import load_project
from pallas.fleet.fleet import Fleet
from pallas.model import AgentChanged, AgentState, Event, Fault, FleetState
from pallas.telemetry.event_hub import EventHub

BROKEN = "from fast_agent import FastAgent\n\nfast = FastAgent('broken')\nundefined_name\n"


async def test_all_agents_and_the_registry_answer(tmp_path: Path) -> None:
    # PR-5
    write_project(tmp_path, {"one": None, "two": None})
    async with running(tmp_path) as fleet:
        assert all_ready(fleet)
        assert fleet.state is FleetState.RUNNING
        async with httpx2.AsyncClient(timeout=60) as http:
            body = (await http.get(fleet.registry_url)).json()
        assert [entry["server"]["name"] for entry in body["servers"]] == [
            "local.pallas/one",
            "local.pallas/two",
        ]
        for agent in ("one", "two"):
            for era in ERAS:
                async with client(fleet, agent, era=era) as connected:
                    assert await ask(connected, f"hello {agent}") == f"hello {agent}"


async def test_a_chain_of_dependencies_starts_from_its_end(tmp_path: Path) -> None:
    # PR-5, PR-6
    write_project(
        tmp_path,
        {"a": None, "b": None, "c": None},
        keys={"a": {"depends_on": ["b"]}, "b": {"depends_on": ["c"]}},
    )
    async with running(tmp_path) as fleet:
        events = [event for event in fleet.hub.since(0).events if isinstance(event, AgentChanged)]
        at = {(event.agent, event.state): event.seq for event in events}
        assert at["c", AgentState.READY] < at["b", AgentState.IMPORTING]
        assert at["b", AgentState.READY] < at["a", AgentState.IMPORTING]


async def test_the_registry_listens_before_any_agent_starts(tmp_path: Path) -> None:
    # PR-5
    write_project(tmp_path, {"one": None})
    project = load_project(tmp_path)
    reached: list[bool] = []

    def look(event: Event) -> None:
        if isinstance(event, AgentChanged) and event.state is AgentState.IMPORTING:
            with socket.socket() as sock:
                reached.append(sock.connect_ex(("127.0.0.1", project.registry_port)) == 0)

    hub = EventHub()
    hub.listen(look)
    fleet = Fleet(project, hub=hub, dev=True)
    try:
        await fleet.start()
        assert reached == [True]
    finally:
        await fleet.stop()


async def test_an_agent_that_does_not_import_is_in_error_and_the_rest_run(tmp_path: Path) -> None:
    # PR-7, PI-12
    write_project(tmp_path, {"broken": BROKEN, "fine": None})
    async with running(tmp_path) as fleet:
        snapshot = fleet.snapshot()
        broken, fine = snapshot.agents
        assert broken.state is AgentState.ERROR
        assert "agents/broken.py:4: NameError: name 'undefined_name' is not defined" in broken.error
        assert "Traceback" in broken.error
        assert fine.state is AgentState.READY
        for era in ERAS:
            async with client(fleet, "broken", era=era) as connected:
                health = await connected.call_tool("get_health", {})
                text = health.content[0].text  # type: ignore[union-attr]
                assert '"status": "error"' in text
                assert "its code failed; the log has the details" in text
                refused = await connected.call_tool("send_message", {"message": "x"})
                assert refused.is_error
                told = refused.content[0].text  # type: ignore[union-attr]
                assert "broken cannot answer: its code failed; the log has the details" in told
                assert "broken.py" not in text + told
            async with client(fleet, "fine", era=era) as connected:
                assert await ask(connected, "x") == "x"


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = 1\n", "has no `fast`"),
        ("fast = 3\n", "`fast` is int"),
        ("import sys\nsys.exit(3)\n", "exit(3)"),
        ("def broken(:\n", "SyntaxError"),
        ("from fast_agent import FastAgent\nfast = FastAgent('x')\n", "defines no agent"),
    ],
)
async def test_a_module_that_is_no_agent_says_what_is_missing(tmp_path: Path, source: str, says: str) -> None:
    # PR-7
    write_project(tmp_path, {"odd": source, "fine": None})
    async with running(tmp_path) as fleet:
        odd, fine = fleet.snapshot().agents
        assert odd.state is AgentState.ERROR
        assert says in odd.health.message
        assert fine.state is AgentState.READY


async def test_a_dependant_of_a_broken_agent_still_starts_with_a_warning(tmp_path: Path) -> None:
    # PR-7
    write_project(tmp_path, {"top": None, "broken": BROKEN}, keys={"top": {"depends_on": ["broken"]}})
    async with running(tmp_path) as fleet:
        assert fleet.snapshot().agents[0].state is AgentState.READY
        assert any("top starts without broken" in repr(event) for event in fleet.hub.since(0).events)


async def test_one_agent_alone_has_no_registry_and_no_dependencies(tmp_path: Path) -> None:
    # PR-4
    write_project(tmp_path, {"top": None, "need": None}, keys={"top": {"depends_on": ["need"]}})
    async with running(tmp_path, only="top") as fleet:
        assert [agent.name for agent in fleet.agents] == ["top"]
        async with client(fleet, "top") as connected:
            assert await ask(connected, "x") == "x"
        assert is_free(fleet.project.registry_port)
        assert is_free(fleet.project.agents["need"].port)


async def test_a_fleet_leaves_the_process_where_it_found_it(tmp_path: Path) -> None:
    write_project(tmp_path, {"one": None})
    before = Path.cwd()
    fleet = Fleet(load_project(tmp_path), dev=True)
    await fleet.start()
    assert Path.cwd() == tmp_path
    await fleet.stop()
    assert Path.cwd() == before


async def test_a_port_in_use_names_the_agent_and_its_line(tmp_path: Path) -> None:
    # PR-8
    write_project(tmp_path, {"one": None, "two": None})
    async with running(tmp_path):
        rival = Fleet(load_project(tmp_path), hub=EventHub(), dev=True)
        with pytest.raises(Fault) as caught:
            rival.reserve()
    lines = caught.value.message.splitlines()
    assert len(lines) == 3
    assert "agent one" in lines[0]
    assert "is in use" in lines[0]
    assert "agents.yaml:" in lines[0]
    assert "registry" in lines[2]


async def test_the_bind_address_follows_mode_and_configuration(tmp_path: Path) -> None:
    # PR-8
    root = write_project(tmp_path, {"one": None})
    for dev, bind, expected in (
        (True, None, "127.0.0.1"),
        (False, None, "0.0.0.0"),
        (False, "127.0.0.1", "127.0.0.1"),
    ):
        top = yaml.safe_load((root / "agents.yaml").read_text())
        top.pop("bind", None)
        (root / "agents.yaml").write_text(yaml.safe_dump(top | ({"bind": bind} if bind else {})))
        fleet = Fleet(load_project(root), dev=dev)
        fleet.reserve()
        try:
            addresses = {address for address, _ in fleet.ports.reserved}
            assert addresses == {expected}
        finally:
            await fleet.stop()


async def test_every_port_refuses_a_foreign_host_and_origin(tmp_path: Path) -> None:
    # PR-8
    write_project(tmp_path, {"one": None}, top={"host": "desk.example", "allowed_hosts": ["also.example"]})
    async with running(tmp_path) as fleet, httpx2.AsyncClient(timeout=60) as http:
        for url in (fleet.agents[0].url, fleet.registry_url):
            for headers, refused in (
                ({"Host": "evil.example"}, 421),
                ({"Origin": "http://evil.example"}, 403),
            ):
                assert (await http.get(url, headers=headers)).status_code == refused
            for host in ("desk.example", "also.example:8080", "localhost", "127.0.0.1"):
                assert (await http.get(url, headers={"Host": host})).status_code not in (421, 403)


@pytest.mark.slow
async def test_a_program_of_the_project_starts_first_and_is_gone_afterwards(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    program = f"""
import http.server, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("serving, child", child.pid, flush=True)
http.server.HTTPServer(("127.0.0.1", {port}), http.server.BaseHTTPRequestHandler).serve_forever()
"""
    server = {"command": ["python", "program.py"], "url": f"http://127.0.0.1:{port}/"}
    write_project(tmp_path, {"one": None}, top={"servers": {"web": server}}, files={"program.py": program})
    async with running(tmp_path) as fleet:
        (shown,) = fleet.snapshot().servers
        assert shown.state is AgentState.READY
        assert shown.pid is not None
        family = [psutil.Process(shown.pid), *psutil.Process(shown.pid).children(recursive=True)]
        assert len(family) == 2
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []


async def test_a_program_that_ends_at_once_is_told_with_its_last_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = {
        "command": ["python", "-c", "raise SystemExit('no database')"],
        "url": f"http://127.0.0.1:{port}/",
        "restart": "never",
    }
    write_project(tmp_path, {"one": None}, top={"servers": {"db": server}})
    async with running(tmp_path) as fleet:
        (shown,) = fleet.snapshot().servers
        assert shown.state is AgentState.ERROR
        assert "status 1" in shown.error
        assert "no database" in shown.error
        assert fleet.snapshot().agents[0].state is AgentState.READY


async def test_an_agent_whose_downstream_is_away_runs_degraded_and_recovers(tmp_path: Path) -> None:
    # PI-12, PI-17
    settings = {"mcp": {"servers": {"echo": {"command": "python", "args": ["later.py"]}}}}
    write_project(tmp_path, {"one": agent_module("one", ("echo",))}, config=settings)
    async with running(tmp_path) as fleet, client(fleet, "one") as one:
        assert fleet.snapshot().agents[0].state is AgentState.READY
        health = fleet.snapshot().agents[0].health
        assert health.status.value == "degraded"
        assert health.message == "Unreachable: echo"
        answered = await one.call_tool("send_message", {"message": "x"})
        assert answered.content[0].text == "x"  # type: ignore[union-attr]
        assert (answered.meta or {})["local.pallas/missingServers"] == {"echo": "cannot be reached"}
        (tmp_path / "later.py").write_text((tmp_path / "echo_server.py").read_text())
        call = '***CALL_TOOL echo__echo {"text": "back"}'
        # Each question has the missing server tried again.
        await poll(lambda: ask(one, call), lambda answer: "echo:back" in answer, timeout=30)
        assert (await one.call_tool("get_health", {})).content[0].text.startswith('{"status": "ok"')  # type: ignore[union-attr]


def _start(root: Path, *arguments: str, truly: bool = False) -> subprocess.Popen[str]:
    given: dict[str, Any] = {
        "cwd": root,
        "env": {**os.environ, "PALLAS_LOG_FILE": str(root / "pallas.log")},
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        "start_new_session": True,
    }
    if truly:
        return subprocess.Popen([sys.executable, "-m", "pallas.server", *arguments], **given)
    return pallas_process.start(*arguments, **given)


def _read_until(process: subprocess.Popen[str], text: str, timeout: float = 60) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    deadline = monotonic() + timeout
    while monotonic() < deadline:
        line = process.stdout.readline()
        lines.append(line)
        if text in line:
            return lines
        if not line and process.poll() is not None:
            break
    raise AssertionError(f"{text!r} did not come: {lines} {process.stderr and process.stderr.read()}")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    # PR-4
    (port,) = free_ports(1)
    server = {"command": ["python", "-m", "http.server", str(port), "--bind", "127.0.0.1"]}
    root = write_project(
        tmp_path,
        {"one": agent_module("one", ("echo",)), "two": None},
        config=ECHO,
        top={"servers": {"web": {**server, "url": f"http://127.0.0.1:{port}/"}}},
    )
    project = load_project(root)
    process = _start(root, truly=number == signal.SIGTERM)
    try:
        lines = _read_until(process, "running")
        assert any("one: ready" in line for line in lines)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 2
        process.send_signal(number)
        out, err = process.communicate(timeout=90)
        assert process.returncode == 0
        assert "Traceback" not in out + err
        _, alive = psutil.wait_procs(children, timeout=30)
        assert alive == []
        for each in (project.registry_port, port, *(a.port for a in project.agents.values())):
            assert is_free(each)
    finally:
        process.kill()
        process.wait()


def test_an_unknown_agent_lists_the_known_ones(tmp_path: Path) -> None:
    # PR-4
    write_project(tmp_path, {"one": None, "two": None})
    process = _start(tmp_path, "--agent", "three")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "no agent 'three'; known: one, two" in err


def test_a_project_with_mistakes_tells_all_of_them_and_starts_nothing(tmp_path: Path) -> None:
    # PR-2
    (tmp_path / "agents.yaml").write_text("nam: x\nagents:\n  a: {module: a, port: 99999}\n")
    process = _start(tmp_path)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert out == ""
    assert "Traceback" not in err
    assert "agents.yaml:1" in err
    assert "99999" in err


def test_it_runs_from_another_folder_with_a_project_given(tmp_path: Path) -> None:
    # PR-1
    root = write_project(tmp_path / "project", {"one": None})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    process = _start(elsewhere, "--project", str(root))
    try:
        _read_until(process, "running")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert list(elsewhere.iterdir()) == [elsewhere / "pallas.log"]
    finally:
        process.kill()
        process.wait()


def test_a_broken_script_of_the_offline_model_is_told_with_its_line(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    top = {"scripted": {"script": "model.yaml", "port": port}}
    write_project(tmp_path, {"one": None}, top=top, files={"model.yaml": "rules:\n  - wen: {last: user}\n"})
    for arguments in ([], ["check"]):
        process = _start(tmp_path, *arguments)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 2
        assert "model.yaml:2" in err
        assert "Traceback" not in out + err


SKILL = "---\nname: sum\ndescription: Sums up\n---\nSum it up.\n"
DUTY = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse, Text


@dataclass
class Order:
    what: str


async def duty(payload, metadata):
    return HandlerResponse.respond(Text(payload.what))
"""


@pytest.mark.slow
async def test_a_fleet_that_reloads_and_stops_leaves_no_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    def kinds() -> set[str]:
        return {each.name.rpartition("-")[0] for each in temporary.iterdir()}

    handler = {"kind": "handler", "handler": "desk:duty", "payload": "desk:Order", "isolation": "process"}
    entry = {**handler, "description": "Takes one.", "memory": "256MB", "module": None, "port": None}
    root = write_project(
        tmp_path / "project",
        {"shell": agent_module("shell", shell=True), "apart": None},
        keys={"shell": {"port": None}, "apart": entry},
        top={"port": free_ports(1)[0]},
        files={"desk.py": DUTY, ".claude/skills/sum/SKILL.md": SKILL},
    )
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet))
        assert kinds() == {"fast-agent-output", "pallas-handler"}
        for _ in range(2):
            assert await ask_agent(fleet, "shell", "hello") == "hello"
        for name in ("shell", "apart"):
            code = root / ("agents/shell.py" if name == "shell" else "desk.py")
            code.write_text(f"{code.read_text()}# Another version.\n")
            await control(fleet, name, "reload")
            assert fleet.snapshot().agent(name).reloads == 1
            await control(fleet, name, "restart")
    gc.collect()  # some belong to what fast-agent has made and never used
    assert kinds() == set()


@pytest.mark.slow
def test_a_command_that_ends_leaves_no_temporary_folder(tmp_path: Path) -> None:
    (temporary := tmp_path / "tmp").mkdir()
    files = {".claude/skills/sum/SKILL.md": SKILL}
    root = write_project(tmp_path / "project", {"shell": agent_module("shell", shell=True)}, files=files)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    arguments = ("chat", "shell", "-m", "hello", "--project", str(root))
    asked = pallas_process.run(*arguments, env=environment, capture_output=True, text=True, timeout=120)
    assert (asked.returncode, asked.stdout) == (0, "hello\n"), asked.stderr
    assert [each.name for each in temporary.iterdir()] == []
