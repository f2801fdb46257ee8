"""The configuration of fast-agent that a module names, or that is in the environment."""

from pathlib import Path

import pytest
from support.live import ECHO_SERVER, STDIO_SERVER, ask, client, running, tool_call
from support.ports import free_ports

from pallas.cli.app import run
from pallas.config import load_project
from pallas.fleet.reload.file_usage import usage_of

MODULE = """
import os
from pathlib import Path

from fast_agent import FastAgent

HERE = Path(__file__).parent
FILE = "conf/own.yaml"
fast = FastAgent("one", {config})


@fast.agent("{name}", instruction="x", servers=["echo"])
async def main() -> None: ...
"""
CONFIG = """
default_model: passthrough
logger: {level: error}
mcp:
  servers:
    echo: {command: python, args: [echo_server.py]}
"""
CALL = tool_call("echo__echo", text="hi")


def project(root: Path, **configs: str) -> Path:
    """One agent for each of ``configs``: what its FastAgent is made with; conf/own.yaml is there."""
    (port,) = free_ports(1)
    entries = "".join(f"  {name}: {{module: {name}}}\n" for name in configs)
    files = {f"{name}.py": MODULE.format(name=name, config=text) for name, text in configs.items()}
    files |= {
        "agents.yaml": f"name: named\nport: {port}\nagents:\n{entries}",
        "conf/own.yaml": CONFIG,
        "echo_server.py": ECHO_SERVER,
        "stdio_server.py": STDIO_SERVER,
    }
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    return root


def checked(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = run(["check", str(root), "--offline"])
    return status, capsys.readouterr().err.splitlines()


async def answer(root: Path, agent: str = "one") -> str:
    async with running(root) as fleet, client(fleet, agent) as caller:
        return await ask(caller, CALL)


NAMES = (
    'config_path="conf/own.yaml"',
    '"conf/own.yaml"',
    "config_path=FILE",
    'config_path=str(HERE / "conf" / "own.yaml")',
    'config_path=os.path.join(os.path.dirname(os.path.abspath(__file__)), "conf", "own.yaml")',
    'config_path=(Path(__file__).resolve().parent / "conf/own.yaml").as_posix()',
    'config_path=f"{HERE}/conf/own.yaml"',
)


@pytest.mark.parametrize("names", NAMES)
async def test_the_configuration_that_a_module_names_is_the_projects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    monkeypatch.delenv("FAST_AGENT_MODEL", raising=False)
    root = project(tmp_path, one=names)
    (root / "fastagent.config.yaml").write_text("default_model: openai.no-such.low\n")
    assert checked(root, capsys) == (0, [])
    found = load_project(root)
    assert (found.config_file, found.model, list(found.downstreams)) == (
        root / "conf/own.yaml",
        "passthrough",
        ["echo"],
    )
    assert root / "conf/own.yaml" in usage_of(found, ()).config
    if names == NAMES[0]:
        assert "echo:hi" in await answer(root)


async def test_secrets_beside_it_count_and_mistakes_in_it_have_their_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, one=NAMES[0])
    (root / "conf/fastagent.secrets.yaml").write_text("generic: {api_key: 12345}\n")
    (root / "conf/fastagent.secrets.yaml").chmod(0o600)
    (root / "fastagent.secrets.yaml").write_text("generic: {api_key: [1]}\n")
    status, lines = checked(root, capsys)
    assert (status, lines) == (
        2,
        ["conf/fastagent.secrets.yaml:1: generic.api_key: should be a valid string; quote it"],
    )


async def test_a_file_that_is_only_in_the_projects_folder_is_found_as_by_fast_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, one='config_path="../elsewhere/own.yaml"')
    (root / "conf/own.yaml").rename(root / "own.yaml")
    assert checked(root, capsys) == (0, [])
    assert load_project(root).config_file == root / "own.yaml"


async def test_a_file_that_is_not_there_is_said_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, one='config_path="conf/onw.yaml"')
    (root / "fastagent.config.yaml").write_text(CONFIG)
    status, lines = checked(root, capsys)
    words = "one.py:9: warning: agents.one.module: config_path names conf/onw.yaml, and there is no such file"
    assert status == 2  # the usual file, with the server, is not read: as by fast-agent
    assert lines == [
        f"{words}; fast-agent reads none then; did you mean conf/own.yaml",
        "one.py:12: agents.one.servers: uses server echo, which is not under mcp.servers; add it to the "
        "fast-agent configuration",
    ]


async def test_two_configurations_are_said_and_each_agent_runs_with_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = project(tmp_path, one=NAMES[0], two="parse_cli_args=False")
    other = CONFIG.replace("level: error", "level: warning")
    (root / "fastagent.config.yaml").write_text(other)
    status, lines = checked(root, capsys)
    words = (
        "one.py:9: warning: agents.one.module: reads conf/own.yaml, and two reads fastagent.config.yaml; "
        "name one file in both: what both have, health, keys and `check` take from fastagent.config.yaml"
    )
    assert (status, lines) == (0, [words])
    assert "echo:hi" in await answer(root)
    assert "echo:hi" in await answer(root, "two")


VARIABLES = {
    "MCP__SERVERS__ECHO__COMMAND": "python",
    "MCP__SERVERS__ECHO__ARGS": '["echo_server.py"]',
    "mcp__servers__spare": '{"url": "http://127.0.0.1:9/mcp", "headers": {"X-Key": "hunter2planted"}}',
    "OPENAI__API_KEY": "sk-planted",
    "GENERIC": '{"base_url": "http://127.0.0.1:9/v1"}',
    "LOGGER__LEVEL": "warning",
}


@pytest.mark.parametrize("in_a_file", [False, True])
async def test_settings_in_the_environment_count_as_for_fast_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, in_a_file: bool
) -> None:
    root = project(tmp_path, one="parse_cli_args=False")
    (root / "fastagent.config.yaml").write_text("default_model: passthrough\nlogger: {level: error}\n")
    if in_a_file:
        (root / ".env").write_text("".join(f"{key}='{value}'\n" for key, value in VARIABLES.items()))
        (root / ".env").chmod(0o600)
    else:
        for key, value in VARIABLES.items():
            monkeypatch.setenv(key, value)
    assert checked(root, capsys) == (0, [])
    found = load_project(root)
    assert set(found.downstreams) == {"echo", "spare"}
    assert found.downstreams["spare"].headers == {"X-Key": "hunter2planted"}
    assert found.keys["openai"].variable == "OPENAI__API_KEY"
    assert (found.log_level, found.settings["generic"]["base_url"]) == ("error", "http://127.0.0.1:9/v1")
    assert "planted" not in repr(found)
    assert "echo:hi" in await answer(root)


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        (
            "MCP__SERVERS__ECHO__URL",
            "nowhere",
            "MCP__SERVERS__ECHO__URL: mcp.servers.echo.url: is not an http",
        ),
        ("LLM_RETRIES", "manyplanted", "LLM_RETRIES: llm_retries"),
        (
            "SKILLS",
            "planted",
            "SKILLS: skills: is set in the environment, and fast-agent cannot read it; unset",
        ),
    ],
)
def test_a_variable_that_fast_agent_refuses_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    said: str,
) -> None:
    root = project(tmp_path, one="parse_cli_args=False")
    (root / "fastagent.config.yaml").write_text(CONFIG)
    monkeypatch.setenv(variable, value)
    status, lines = checked(root, capsys)
    assert (status, [line[: len(said)] for line in lines]) == (2, [said])
    assert "planted" not in lines[0]


@pytest.mark.parametrize("variable", ["SKILLS", "HF", "LOGGER"])
def test_such_a_variable_is_named_without_a_configuration_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    root = project(tmp_path, one="parse_cli_args=False")
    monkeypatch.setenv(variable, "planted")
    status, lines = checked(root, capsys)
    assert status == 2
    assert lines[0].startswith(f"{variable}: {variable.lower()}: "), lines


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("fastagent.config.yml", "fastagent.config.yaml"),
        ("fast_agent.config.yaml", "fast-agent.config.yaml"),
        ("fastagent.secrets.yml", "fastagent.secrets.yaml"),
        ("fastagent.secrets.yaml.example", ""),
    ],
)
def test_a_file_that_is_named_nearly_so_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, meant: str
) -> None:
    root = project(tmp_path, one=NAMES[0])
    (root / name).write_text("{}")
    lines = checked(project(tmp_path, one="parse_cli_args=False"), capsys)[1]
    said = f"{name}: warning: is not read: fast-agent knows no such name; name it {meant}"
    assert (said in lines) == bool(meant), lines
    (root / "agents.yaml").rename(root / "agents.yml")
    said = "agents.yaml: there is no such file; rename agents.yml to agents.yaml"
    assert checked(root, capsys)[1][0] == said


@pytest.mark.parametrize(("key", "meant"), [("mcpServers", "mcp.servers"), ("model", "default_model")])
def test_a_key_of_another_program_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, meant: str
) -> None:
    root = project(tmp_path, one="parse_cli_args=False")
    (root / "fastagent.config.yaml").write_text(f"{CONFIG}{key}: {{}}\n")
    words = (
        f"fastagent.config.yaml:7: warning: {key}: unknown key, which has no effect; fast-agent reads {meant}"
    )
    assert checked(root, capsys) == (0, [words])
