"""The projects that fast-agent's own generators write start as they are."""

import subprocess
import sys
from pathlib import Path

import pytest
from support.live import all_ready, ask, client, running
from support.ports import free_ports
from support.waiting import until

from pallas.cli.check import check
from pallas.model import AgentState

TEMPLATE = """\
groq: {api_key: <your-api-key-here>}
groq: {api_key: <your-api-key-here>}
mcp:
  servers:
    search:
      env: {SEARCH_KEY: <your-api-key-here>}
"""
AGENT = """
from fast_agent import FastAgent

fast = FastAgent("one", parse_cli_args=False)

SERVERS = "search".split()


@fast.agent(instruction="You answer.", model="passthrough", servers=%s)
async def main() -> None: ...
"""


def project(root: Path) -> Path:
    registry, port = free_ports(2)
    agents = f"agents:\n  agent: {{module: agent, port: {port}}}\n"
    (root / "agents.yaml").write_text(f"name: scaffold\nregistry_port: {registry}\n{agents}")
    return root


@pytest.fixture(scope="module")
def scaffold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("scaffold")
    command = (Path(sys.executable).with_name("fast-agent"), "scaffold", "--config-dir", root)
    subprocess.run(command, input=b"y\n" * 9, check=True, capture_output=True, timeout=120)
    (root / "fast-agent.secrets.yaml").chmod(0o600)
    return project(root)


async def answer_to_hello(root: Path) -> str:
    async with running(root) as fleet:
        (found,) = fleet.agents
        assert all_ready(fleet)
        async with client(fleet, found.name) as caller:
            return await ask(caller, "hello")


async def test_the_scaffold_as_it_is_written_is_checked_and_starts(
    scaffold: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(scaffold) == 0
    printed = capsys.readouterr()
    assert "deepseek: is given twice, first on line 11" in printed.err
    assert "mcp.servers.brave.url: url and command are both missing" in printed.err
    assert all(": warning: " in line for line in printed.err.splitlines())
    monkeypatch.setenv("FAST_AGENT_MODEL", "passthrough")
    assert await answer_to_hello(scaffold) == "hello"


async def test_a_template_of_a_server_is_a_mistake_only_for_the_agent_that_uses_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "fast-agent.secrets.yaml").write_text(TEMPLATE)
    (tmp_path / "agent.py").write_text(AGENT % "[]")
    project(tmp_path)
    assert await answer_to_hello(tmp_path) == "hello"
    (tmp_path / "agent.py").write_text(AGENT % '["search"]')
    assert check(tmp_path) == 2
    use = "uses server search, which cannot be used (fast-agent.secrets.yaml:5: url: url and command are both"
    assert f"agent.py:9: agents.agent.servers: {use}" in capsys.readouterr().err
    # A name that only the import shows is found when the agent starts.
    (tmp_path / "agent.py").write_text(AGENT % "SERVERS")
    assert check(tmp_path) == 0
    async with running(tmp_path) as fleet:
        assert fleet.agents[0].state is AgentState.ERROR
    assert use in caplog.text


QUICKSTARTS = ("workflow", "data-analysis", "elicitations", "tensorzero", "toad-cards")


def quickstart(root: Path, name: str) -> Path:
    """A project of all modules and cards that `fast-agent quickstart` writes."""
    command = (Path(sys.executable).with_name("fast-agent"), "--no-update-check", "quickstart", name, root)
    subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, check=True, capture_output=True, timeout=120)
    found = root / name if (root / name).is_dir() else root
    modules = [each.stem for each in sorted(found.glob("*.py")) if "FastAgent(" in each.read_text("utf-8")]
    cards = [each.relative_to(found) for each in sorted(found.glob(".fast-agent/agent-cards/*.md"))]
    entries = [f"  {name}: {{module: {name}}}" for name in modules]
    entries += [f"  {card.stem}: {{card: {card}}}" for card in cards]
    (port,) = free_ports(1)
    lines = ["name: quickstart", f"port: {port}", "agents:", *entries, ""]
    (found / "agents.yaml").write_text("\n".join(lines))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICKSTARTS)
async def test_each_quickstart_is_checked_and_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.setenv("FAST_AGENT_MODEL", "passthrough")
    root = quickstart(tmp_path, name)
    assert check(root) == 0
    assert all(": warning: " in line for line in capsys.readouterr().err.splitlines())
    async with running(root) as fleet:
        assert fleet.agents
        await until(lambda: all_ready(fleet))
