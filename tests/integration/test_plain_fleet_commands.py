"""`pallas` as it is, and the commands that its own user types on the same machine."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import pallas_process
from support.live import agent_module
from support.offline import offline_project
from support.served import Served, served

SCRIPT = 'rules:\n  - {when: {last: user}, say: "turn {{ turns }}"}\n'


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plain")
    root = offline_project(folder / "desk", {"concierge": agent_module("concierge")}, SCRIPT)
    with served(root, plain=True, **_environment(folder)) as running:
        yield running


def _environment(folder: Path) -> dict[str, str]:
    return {
        "XDG_STATE_HOME": str(folder / "state"),
        "PALLAS_DATABASE_URL": f"sqlite:///{folder}/ledger.sqlite3",
    }


def typed(root: Path, *words: str, stdin: str = "") -> str:
    """What a command prints when it is typed in the project's folder; fails the test where it fails."""
    done = run(root, *words, stdin=stdin)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def run(root: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """A command of this user, typed in the project's folder."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PALLAS_")}
    return pallas_process.run(
        *words,
        cwd=root,
        env={**clean, **_environment(root.parent)},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
async def test_its_user_talks_to_it_and_makes_agents_without_any_configuration(fleet: Served) -> None:
    # AG-22, AG-25
    await fleet.says("concierge: ready")
    assert "concierge" in typed(fleet.root, "get", "agents")
    assert typed(fleet.root, "chat", "concierge", "-m", "Who are you?") == "turn 1\n"

    model = fleet.entries["scripted"]["port"]
    typed(fleet.root, "create", "secret", "litellm-key", "--data", "API_KEY=offline")
    typed(
        fleet.root, "create", "llm", "qwen", "--type", "openai", "--model", "qwen3",
        "--url", f"http://127.0.0.1:{model}/v1", "--api-key-ref", "litellm-key/API_KEY",
    )  # fmt: skip
    typed(
        fleet.root, "create", "agent", "reviewer", "--llm", "qwen",
        "--description", "I review what you're shipping", "--default-temperature", "0.2",
    )  # fmt: skip
    assert typed(fleet.root, "chat", "reviewer", "-m", "What changed?") == "turn 1\n"
    document = typed(fleet.root, "get", "agent", "reviewer", "-o", "yaml")
    assert "unchanged" in typed(fleet.root, "apply", "-f", "-", stdin=document)
    typed(fleet.root, "delete", "agent", "reviewer")


@pytest.mark.slow
async def test_a_thread_continues_with_and_without_a_fleet_that_runs(tmp_path: Path) -> None:
    root = offline_project(tmp_path / "desk", {"concierge": agent_module("concierge")}, SCRIPT)
    before = _thread_of(run(root, "chat", "concierge", "-m", "Who are you?"))
    with served(root, plain=True, **_environment(tmp_path)) as fleet:
        await fleet.says("concierge: ready")
        _goes_on(root, before, 2)
        during = _thread_of(run(root, "chat", "concierge", "-m", "Who are you?"))
        fleet.process.terminate()
        assert await fleet.ended() == 0
    _goes_on(root, before, 3)
    _goes_on(root, during, 2)


def _goes_on(root: Path, thread: str, turn: int) -> None:
    assert typed(root, "chat", "concierge", "--thread", thread, "-m", "and then?") == f"turn {turn}\n"


def _thread_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    found = re.search(r"\(thread: (\S+)\)", done.stderr)
    assert found is not None, done.stderr
    return found[1]
