"""The lines of a headless fleet: each thing once, and none left out."""

import pytest

from pallas.cli.startup_report import Narrator
from pallas.model import AgentChanged, AgentState, Event, Notice, Reloaded

FILES = ("agents/desk.py",)


def told(capfd: pytest.CaptureFixture[str], *events: Event) -> tuple[list[str], list[str]]:
    """What is on stdout and on stderr after these events."""
    narrator = Narrator("shop")
    for event in events:
        narrator.hear(event)
    out, err = capfd.readouterr()
    return out.splitlines(), err.splitlines()


def test_a_new_version_is_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    out, err = told(
        capfd,
        AgentChanged(agent="desk", state=AgentState.READY, detail="version 2 answers after 0.1 s"),
        Reloaded(agent="desk", outcome="live", files=FILES, version=2, seconds=0.1),
    )
    assert out == ["[shop] desk: version 2 is live after 0.10 s (agents/desk.py)"]
    assert err == []


def test_a_start_and_a_return_are_told(capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = told(
        capfd,
        AgentChanged(agent="desk", state=AgentState.READY, detail="ready in 1.6 s"),
        AgentChanged(agent="desk", state=AgentState.READY, detail="ready again after 2 failures"),
    )
    assert out == ["[shop] desk: ready in 1.6 s", "[shop] desk: ready again after 2 failures"]


def test_a_mistake_that_is_taken_back_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    same = Reloaded(agent="desk", outcome="unchanged", files=FILES, version=1)
    out, err = told(
        capfd,
        same,  # nobody waits for this one
        Reloaded(agent="desk", outcome="failed", files=FILES, error="NameError: x", place="agents/desk.py:3"),
        same,
        same,
    )
    assert out == ["[shop] desk: nothing changed (agents/desk.py)"]
    assert err == [
        "[shop] error: desk: not reloaded (agents/desk.py): agents/desk.py:3: NameError: x; "
        "the previous version still answers"
    ]


def test_every_mistake_of_the_projects_files_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    mistakes = ["agents.yaml:3: agents.desk.prot: unknown key", "agents.yaml:3: agents.desk.port: is missing"]
    failed = Reloaded(
        outcome="failed",
        files=("agents.yaml",),
        place="agents.yaml:3",
        error=f"{mistakes[0]} (and 1 more)",
        story="\n".join(mistakes),
    )
    _, err = told(capfd, failed)
    assert err == [
        f"[shop] error: project: not reloaded (agents.yaml): {mistakes[0]} (and 1 more); "
        "the previous version still answers",
        f"[shop] error: {mistakes[1]}",
    ]


def test_what_the_log_says_on_stderr_is_not_said_twice(capfd: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator("shop", logged=True)
    narrator.hear(Notice(level="warning", text="desk is away"))
    narrator.hear(AgentChanged(agent="desk", state=AgentState.READY, detail="ready in 1.6 s"))
    narrator.warn("the log cannot be written")
    out, err = capfd.readouterr()
    assert out == "[shop] desk: ready in 1.6 s\n"
    assert err == "[shop] the log cannot be written\n"
