"""Projects as users of fast-agent have them: what it takes starts, and what it refuses has its line."""

from pathlib import Path

import pytest
from support.live import ask, client, running, write_project

from pallas.cli.app import run
from pallas.model import AgentState

OWN = """
from fast_agent import FastAgent

fast = FastAgent("own")


@fast.agent("own", instruction="x", model="passthrough")
async def main() -> None: ...
"""
TEAM = """
from fast_agent import FastAgent

fast = FastAgent("team")


@fast.agent("writer", instruction="x", model="passthrough")
@fast.agent("reader", instruction="x")
@fast.chain(name="line", sequence=["writer", "reader"])
@fast.router(name="desk", agents=["writer"])
async def main() -> None: ...
"""
LINE = """
from fast_agent import FastAgent

fast = FastAgent("line")


@fast.agent("one", instruction="x", model="passthrough")
@fast.chain(name="both", sequence=["one", "one"])
async def main() -> None: ...
"""
CARD = "---\nname: card\n---\nYou answer.\n"
NONE = {"default_model": None}


CARD_KEYS = {"module": None, "card": "card.md"}


def checked(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = run(["check", str(root), "--offline"])
    return status, capsys.readouterr().err.splitlines()


async def test_an_agent_without_any_model_is_shown_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FAST_AGENT_MODEL", "DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    keys = {"line": {"module": "line", "agent": "both"}, "desk": {"module": "team"}, "card": CARD_KEYS}
    files = {"line.py": LINE, "team.py": TEAM, "card.md": CARD}
    root = write_project(tmp_path, dict.fromkeys(keys), keys=keys, config=NONE, files=files)
    status, lines = checked(root, capsys)
    words = "names no model, and the project has no default_model; write"
    last = "there, or default_model: into fastagent.config.yaml"
    assert (status, sorted(lines)) == (
        0,
        [
            f"card.md:2: warning: agents.card.model: card {words} model: {last}",
            f'team.py:10: warning: agents.desk.model: desk {words} model="..." {last}',
            f'team.py:8: warning: agents.desk.model: reader {words} model="..." {last}',
        ],
    )
    async with running(root) as fleet:
        found = {agent.name: agent for agent in fleet.agents}
        assert found["line"].state is AgentState.READY, found["line"].story
        assert found["card"].story == f"card.md:1: agents.card.model: card {words} model: {last}"
        assert found["desk"].story.startswith("team.py:")
        assert f"agents.desk.model: desk {words}" in found["desk"].story


@pytest.mark.parametrize("variable", ["FAST_AGENT_MODEL", "DEFAULT_MODEL"])
async def test_the_environment_names_the_default_model_as_for_fast_agent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "passthrough")
    root = write_project(tmp_path, {"plain": None})
    (root / "fastagent.config.yaml").write_text("logger: {level: error}\n")
    assert checked(root, capsys) == (0, [])
    async with running(root) as fleet, client(fleet, "plain") as caller:
        assert await ask(caller, "hello") == "hello"
    monkeypatch.setenv(variable, "openai.no-such-thing.low")
    assert checked(root, capsys)[0] == 2


def configured(root: Path, text: str) -> Path:
    """A project with one agent that names its model, and this configuration."""
    write_project(root, {"own": OWN})
    (root / "fastagent.config.yaml").write_text(text)
    return root


REFUSED = {  # what is said of the configuration, from the line on
    "shell_execution:\n": "1: shell_execution: has no value; write one, or remove the key",
    "logger:\n": "1: logger: has no value; write one, or remove the key",
    "# a\nmcp_ui_mode: auto\n": "2: mcp_ui_mode: `mcp_ui_mode` were removed in fast-agent",
    "generic:\n  api_key: 12345\n": "2: generic.api_key: should be a valid string; quote it",
    "model_references:\n  system:\n    fast:\n": "3: model_references.system.fast: has no",
    "mcp_timeline: {step_seconds: many}\n": "1: mcp_timeline.step_seconds: ",
}


@pytest.mark.parametrize("text", REFUSED)
async def test_what_fast_agent_refuses_of_its_configuration_has_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    root = configured(tmp_path, text)
    status, lines = checked(root, capsys)
    assert (status, len(lines)) == (2, 1), lines
    expected = f"fastagent.config.yaml:{REFUSED[text]}"
    assert lines[0].startswith(expected), lines
    assert "12345" not in lines[0]
    async with running(root) as fleet:
        assert fleet.agents[0].state is AgentState.ERROR
        words = expected.split(": ", 2)
        assert fleet.agents[0].story.startswith(f"{words[0]}: {words[1]} {words[2]}")


TAKEN = (
    "default_model:\n",
    "default_model: ''\n",
    "mcp:\n  servers:\n",
    "openai:\n  api_key:\n",
    "# nothing\n",
)


@pytest.mark.parametrize("text", TAKEN)
async def test_what_is_left_empty_and_fast_agent_takes_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    root = configured(tmp_path, text)
    assert checked(root, capsys) == (0, [])
    async with running(root) as fleet, client(fleet, "own") as caller:
        assert await ask(caller, "hello") == "hello"


SERVER = """
default_model: passthrough
mcp:
  servers:
    echo:
      type: stdio
      command: python
      args: [echo_server.py]
      disabled: false
      request_read_timeout_seconds: 300
    spare:
      type: http
      base_url: http://127.0.0.1:9/mcp
    words: {command: python echo_server.py}
    away: {command: python, cwd: nowhere}
"""
USES = """
from fast_agent import FastAgent

fast = FastAgent("own")


@fast.agent("own", instruction="x", servers=["echo"])
async def main() -> None: ...
"""


async def test_keys_of_other_programs_in_a_server_do_not_stop_a_project(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write_project(tmp_path, {"own": USES})
    (root / "fastagent.config.yaml").write_text(SERVER)
    status, lines = checked(root, capsys)
    assert (status, all(": warning: " in line for line in lines)) == (0, True), lines
    for place in (
        "6: warning: mcp.servers.echo.type",
        "9: warning: mcp.servers.echo.disabled",
        "10: warning: mcp.servers.echo.request_read_timeout_seconds",
        "12: warning: mcp.servers.spare.type",
        "13: warning: mcp.servers.spare.base_url",
    ):
        assert any(f"yaml:{place}: unknown key, which has no effect" in line for line in lines), lines
    assert any("write `command: python` and `args: [echo_server.py]`" in line for line in lines), lines
    assert any("starts in nowhere, and there is no such folder; create it" in line for line in lines), lines
    async with running(root) as fleet, client(fleet, "own") as caller:
        assert "echo:hi" in await ask(caller, '***CALL_TOOL echo__echo {"text": "hi"}')


GONE = """
from fast_agent import FastAgent
from fast_agent.no_such_part.inner import Thing

fast = FastAgent("gone")


@fast.agent("gone", instruction="x")
async def main() -> None: ...
"""


async def test_what_cannot_start_is_shown_without_an_import(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"gone": {"module": "gone"}, "tale": {"module": None, "card": "tale.md"}}
    files = {"gone.py": GONE, "tale.md": "# A tale\n\nOnce upon a time.\n"}
    root = write_project(tmp_path, dict.fromkeys(keys), keys=keys, files=files)
    status, lines = checked(root, capsys)
    problem = "imports fast_agent.no_such_part.inner, which fast-agent does not have; fast-agent "
    assert (status, len(lines)) == (2, 2), lines
    assert lines[0].startswith(f"gone.py:3: warning: agents.gone.module: {problem}"), lines
    words = "has no front matter; begin it with a line ---, its keys and another line ---"
    assert lines[1] == f"tale.md:1: agents.tale.card: {words}"
    async with running(root) as fleet:
        assert {agent.state for agent in fleet.agents} == {AgentState.ERROR}
