"""What `pallas connect` prints: a valid file for each client, and never a token."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.ports import free_ports

from pallas.cli.resources.client_config import ConnectOptions, connect
from pallas.cli.resources.fleet_requests import FleetLocation
from pallas.cli.resources.mcp_clients import CLIENTS, ServerEntry
from pallas.surfaces.auth.static_tokens import make_token, sha256_of

TARGETS = (
    ServerEntry("reviewer", "http://localhost:24201/mcp", token=True, seconds=90),
    ServerEntry("7.of_nine", "http://fleet.example:24200/agents/7.of_nine/mcp"),
)


def _entries(client: str) -> dict[str, Any]:
    text = CLIENTS[client].text(TARGETS)
    body = tomllib.loads(text) if client == "codex" else json.loads(text)
    found: dict[str, Any] = body[{"codex": "mcp_servers", "vscode": "servers"}.get(client, "mcpServers")]
    return found


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_gets_a_valid_file_with_names_that_it_takes(client: str) -> None:
    entries = _entries(client)
    assert list(entries) == ["reviewer", "agent-7-of_nine"]
    assert TARGETS[0].url in json.dumps(entries["reviewer"])
    assert TARGETS[1].url in json.dumps(entries["agent-7-of_nine"])
    assert CLIENTS[client].words(TARGETS)


def test_each_client_gets_the_token_in_its_own_way() -> None:
    header = {client: _entries(client)["reviewer"].get("headers") for client in CLIENTS}
    assert header["claude-code"] == header["gemini"] == {"Authorization": "Bearer ${PALLAS_TOKEN}"}
    assert header["cursor"] == {"Authorization": "Bearer ${env:PALLAS_TOKEN}"}
    assert header["vscode"] == {"Authorization": "Bearer ${input:pallas-token}"}
    assert _entries("codex")["reviewer"]["bearer_token_env_var"] == "PALLAS_TOKEN"
    desktop = _entries("claude-desktop")["reviewer"]
    assert desktop["args"][-2:] == ["--header", "Authorization:${PALLAS_AUTHORIZATION}"]
    assert desktop["env"] == {"PALLAS_AUTHORIZATION": "Bearer ${PALLAS_TOKEN}"}
    for client in CLIENTS:
        assert "uthorization" not in json.dumps(_entries(client)["agent-7-of_nine"])


def test_programs_that_start_others_reach_plain_http_elsewhere_only_when_told() -> None:
    entries = _entries("claude-desktop")
    assert "--allow-http" not in entries["reviewer"]["args"]
    assert "--allow-http" in entries["agent-7-of_nine"]["args"]


def test_runs_may_take_as_long_as_the_agent_lets_them() -> None:
    assert _entries("codex")["reviewer"]["tool_timeout_sec"] == 90
    assert _entries("gemini")["reviewer"]["timeout"] == 90_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    token = {"sha256": sha256_of(make_token())}
    agents = {
        "open_one": {"module": "agents.one", "port": free_ports(1)[0], "auth": "off"},
        "asked": {"module": "agents.two", "port": free_ports(1)[0], "run_timeout": 60},
    }
    (tmp_path / "agents.yaml").write_text(
        yaml.safe_dump(
            {
                "name": "desk",
                "registry_port": free_ports(1)[0],
                "agents": agents,
                "auth": {"tokens": {"ci": token}},
            }
        )
    )
    (tmp_path / "agents").mkdir()
    for name in ("__init__", "one", "two"):
        (tmp_path / "agents" / f"{name}.py").touch()
    return tmp_path


def test_a_project_that_does_not_run_is_told_of_by_its_files(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALLAS_TOKEN", "tok-very-secret")
    assert connect(ConnectOptions(client="claude-code"), FleetLocation(folder)) == 0
    printed = capsys.readouterr()
    servers = json.loads(printed.out)["mcpServers"]
    entries = yaml.safe_load((folder / "agents.yaml").read_text())
    ports = {name: agent["port"] for name, agent in entries["agents"].items()}
    assert servers["open_one"] == {"type": "http", "url": f"http://localhost:{ports['open_one']}/mcp"}
    assert servers["asked"]["headers"] == {"Authorization": "Bearer ${PALLAS_TOKEN}"}
    assert "tok-very-secret" not in printed.out + printed.err
    assert "no fleet of this project runs" in printed.err
    assert connect(ConnectOptions(agent="open-one"), FleetLocation(folder)) == 0
    assert list(json.loads(capsys.readouterr().out)["mcpServers"]) == ["open_one"]


def test_virtual_servers_and_projects_have_addresses_at_the_fleets_port(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = yaml.safe_load((folder / "agents.yaml").read_text())["registry_port"]
    for wish, name, path in (
        (ConnectOptions("asked", virtual=True), "agent-asked", "/virtual/agent-asked/mcp"),
        (ConnectOptions(project="shop"), "shop", "/projects/shop/mcp"),
        (ConnectOptions(virtual=True), "desk", "/projects/desk/mcp"),
    ):
        assert connect(wish, FleetLocation(folder)) == 0
        (entry,) = json.loads(capsys.readouterr().out)["mcpServers"].items()
        assert (entry[0], entry[1]["url"]) == (name, f"http://localhost:{port}{path}")


def test_the_bridge_is_one_entry_as_a_command_or_as_an_address(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = yaml.safe_load((folder / "agents.yaml").read_text())["registry_port"]
    assert connect(ConnectOptions(bridge="url"), FleetLocation(folder)) == 0
    bearer = {"headers": {"Authorization": "Bearer ${PALLAS_TOKEN}"}}
    assert json.loads(capsys.readouterr().out)["mcpServers"] == {
        "desk-fleet": {"type": "http", "url": f"http://localhost:{port}/mcp", **bearer}
    }
    assert connect(ConnectOptions(bridge="command", client="claude-desktop"), FleetLocation(folder)) == 0
    printed = capsys.readouterr()
    entry = json.loads(printed.out)["mcpServers"]["desk-fleet"]
    assert Path(entry["command"]).name == "pallas"
    assert entry["args"] == ["bridge", "--project", str(folder)]
    assert entry["env"] == {"PALLAS_TOKEN": "${PALLAS_TOKEN}"}
    assert "Node" not in printed.err
    assert connect(ConnectOptions(), FleetLocation(folder)) == 0
    assert "pallas connect --bridge command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ("generic", {"type": "stdio", "env": {"PALLAS_TOKEN": "${PALLAS_TOKEN}"}}),
        ("claude-desktop", {"env": {"PALLAS_TOKEN": "${PALLAS_TOKEN}"}}),
        ("claude-code", {"type": "stdio", "env": {"PALLAS_TOKEN": "${PALLAS_TOKEN}"}}),
        ("cursor", {"env": {"PALLAS_TOKEN": "${env:PALLAS_TOKEN}"}}),
        ("vscode", {"type": "stdio", "env": {"PALLAS_TOKEN": "${input:pallas-token}"}}),
        ("codex", {"env_vars": ["PALLAS_TOKEN"], "tool_timeout_sec": 1800}),
        ("gemini", {"env": {"PALLAS_TOKEN": "${PALLAS_TOKEN}"}, "timeout": 1_800_000}),
    ],
)
def test_each_client_starts_a_program_with_the_token_in_its_environment(
    client: str, expected: dict[str, Any]
) -> None:
    target = ServerEntry(
        "fleet", "http://localhost:1/mcp", token=True, command=("pallas", "bridge", "--project", "/a b")
    )
    text = CLIENTS[client].text([target])
    body = tomllib.loads(text) if client == "codex" else json.loads(text)
    (entry,) = body[{"codex": "mcp_servers", "vscode": "servers"}.get(client, "mcpServers")].values()
    assert entry == {"command": "pallas", "args": ["bridge", "--project", "/a b"], **expected}


@pytest.mark.parametrize(
    ("wish", "word"),
    [
        (ConnectOptions("nobody"), "there is no agent nobody; there are asked, open_one"),
        (ConnectOptions(client="emacs"), "allowed: generic"),
        (ConnectOptions("asked", project="shop"), "leave AGENT"),
        (ConnectOptions(bridge="pipe"), "allowed: command, url"),
        (ConnectOptions("asked", bridge="url"), "leave AGENT"),
    ],
)
def test_wrong_wishes_are_status_2_and_print_nothing_on_stdout(
    folder: Path, wish: ConnectOptions, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connect(wish, FleetLocation(folder)) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert word in printed.err


def test_a_fleet_elsewhere_that_does_not_answer_is_status_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert connect(ConnectOptions(), FleetLocation(tmp_path, f"http://127.0.0.1:{free_ports(1)[0]}")) == 3
    assert "no registry" in capsys.readouterr().err
