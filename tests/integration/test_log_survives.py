"""The log stays ours while agents start, come and go: levels, pins and the one file."""

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fast_agent import context
from fast_agent.config import LoggerSettings, Settings
from support.hooks import uninstall
from support.live import agent_module, all_ready, ask, client, running, write_project
from support.waiting import until

from pallas.config import load_project
from pallas.executors.fastagent.fastagent_executor import FastAgentExecutor
from pallas.mcp_client import library_hooks
from pallas.model import AgentState
from pallas.telemetry.log import close_logging, setup_logging
from pallas.telemetry.log.log_file import LogFileHandler
from pallas.telemetry.log.log_setup import PINNED

# An agent whose module sets up logging as if it were alone in the world.
SELFISH = """
import logging
import sys
logging.basicConfig(level=logging.DEBUG, force=True, stream=sys.stderr)
for name in ("mcp", "httpx2", "openai", "fastmcp"):
    logging.getLogger(name).setLevel(logging.DEBUG)
""" + agent_module("selfish")
LIBRARIES = ("fast_agent", "fast_agent.core", "fastmcp", "mcp", "mcp.client", "httpx2", "uvicorn.error")


@pytest.fixture
def log_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("PALLAS_LOG_LEVEL", "PALLAS_ROOT_LOG_LEVEL", "PALLAS_LOG_STDERR"):
        monkeypatch.delenv(name, raising=False)
    close_logging()
    yield setup_logging("debug", path=tmp_path / "pallas.log", stderr=False)
    close_logging()


def messages(path: Path) -> list[tuple[str, str]]:
    records: list[dict[str, Any]] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [(record["logger"], record["message"]) for record in records]


def check_all(path: Path, when: str) -> None:
    """Every library reaches the file once, at its own level and no lower; ours says everything."""
    for name in LIBRARIES:
        logging.getLogger(name).warning("heard %s", when)
        logging.getLogger(name).debug("not heard %s", when)
    logging.getLogger("pallas.kernel").debug("ours %s", when)
    found = messages(path)
    for name in LIBRARIES:
        assert found.count((name, f"heard {when}")) == 1, name
    assert ("pallas.kernel", f"ours {when}") in found
    assert not [name for name, text in found if text == f"not heard {when}"]
    for name in PINNED:
        assert logging.getLogger(name).level == logging.WARNING, name
    assert logging.getLogger().level == logging.INFO
    assert sum(isinstance(each, LogFileHandler) for each in logging.getLogger().handlers) == 1


async def test_an_agent_that_starts_later_changes_nothing_about_the_log(
    tmp_path: Path, log_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # PR-30, PR-33, PR-34
    root = write_project(
        tmp_path / "project",
        {"first": None, "later": agent_module("later"), "selfish": SELFISH},
        config={"logger": {"level": "debug", "type": "console", "progress_display": True}},
    )
    topology = root / "agents.yaml"
    whole = topology.read_text()
    begin = whole.index("  later:")
    topology.write_text(whole[:begin])
    async with running(root) as fleet:
        check_all(log_file, "at first")
        topology.write_text(whole)
        project = load_project(root)
        for name in ("later", "selfish"):
            executor = FastAgentExecutor(project, project.agents[name])
            await executor.load()
            await executor.start()
            try:
                check_all(log_file, f"with {name}")
            finally:
                await executor.close(3.0)
            check_all(log_file, f"without {name}")
        async with client(fleet, "first") as first:
            assert await ask(first, "still here?")
    captured = capfd.readouterr()
    assert captured.err == ""
    assert captured.out == ""


async def test_an_agent_that_fails_to_import_leaves_the_log_as_it_was(
    tmp_path: Path, log_file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # PR-33, PR-34
    root = write_project(tmp_path / "project", {"selfish": SELFISH + "\nraise RuntimeError('no')\n"})
    async with running(root) as fleet:
        assert fleet.agents[0].state is AgentState.ERROR
        check_all(log_file, "in error")
    assert capfd.readouterr() == ("", "")


async def test_what_fast_agent_warns_of_while_it_reads_a_card_or_a_module_is_logged_and_the_agent_starts(
    tmp_path: Path, log_file: Path
) -> None:
    warns = "from fast_agent.core.logging.logger import get_logger\nget_logger('mine').warning('heed this')\n"
    root = write_project(
        tmp_path / "project",
        {"clerk": None, "warns": warns + agent_module("warns")},
        keys={"clerk": {"module": None, "card": "agents/clerk.md"}},
        files={"agents/clerk.md": "---\ntype: agent\nname: clerk\nskills: ../skills\n---\nYou file.\n"},
    )

    def warned() -> set[tuple[str, str]]:
        records = map(json.loads, log_file.read_text("utf-8").splitlines())
        return {
            (each.get("agent", ""), each["message"].partition("] ")[2])
            for each in records
            if each["level"] == "WARNING"
        }

    async with running(root) as fleet:
        assert {each.name: each.reason for each in fleet.agents} == {"clerk": "", "warns": ""}
        assert all_ready(fleet)
        await until(lambda: {("clerk", "Skills directory not found"), ("warns", "heed this")} <= warned())


async def test_fast_agents_own_set_up_is_followed_by_ours(log_file: Path) -> None:
    # PR-29, PR-30: the hook that holds this is installed once, and says so in the file
    from pallas.executors.fastagent import log_seam

    uninstall(log_seam.HOOK)
    for _ in range(3):
        library_hooks.install(log_seam.HOOK)
    assert library_hooks.installed(context, "configure_logger") == ("log",)
    await context.configure_logger(
        Settings(logger=LoggerSettings(type="console", level="debug", progress_display=False))
    )
    fast_agent = logging.getLogger("fast_agent")
    assert fast_agent.propagate
    assert not fast_agent.isEnabledFor(logging.DEBUG)
    assert not [each for each in fast_agent.handlers if getattr(each, "stream", None) is sys.stderr]
    told = [text for name, text in messages(log_file) if "installed hook log " in text]
    assert len(told) == 1
