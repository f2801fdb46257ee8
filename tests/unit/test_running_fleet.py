"""Taken ports: whose they are decides what the user is told."""

from pathlib import Path

import pytest
from support.live import write_project

from pallas.config import Project, load_project
from pallas.fleet.running_fleet import running_fleet
from pallas.surfaces.control.token_file import store_token


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return load_project(write_project(tmp_path / "desk", {"one": None}))


def taken(port: int, holder: str) -> str:
    return (
        f"agents.yaml:3: agent one: port {port} is in use; stop the program that holds it{holder} or choose"
    )


def test_a_fleet_of_the_project_is_known_by_the_token_on_its_port(project: Project) -> None:
    port = project.registry_port
    problem = taken(port, "")
    assert running_fleet(project, problem) is None
    store_token("t", project.root, port)
    found = running_fleet(project, problem)
    assert found is not None
    assert found.origin == f"http://127.0.0.1:{port}"
    assert found.text.startswith("it runs as process ")
    # Another program has a port of an agent, and the fleet is elsewhere.
    assert running_fleet(project, taken(port + 1, "")) is None


def test_a_part_of_the_project_that_cannot_be_attached_to_says_what_to_do(project: Project) -> None:
    ours = f" (process 42, pallas --agent one (test), in {project.root})"
    found = running_fleet(project, taken(1, ours))
    assert found is not None
    assert found.origin == ""
    assert "process 42, pallas --agent one (test)" in found.text
    assert "stop it (kill 42)" in found.text
    # Other programs, and ports of two programs, are told one by one.
    assert running_fleet(project, taken(1, " (process 42, nginx, in /srv)")) is None
    assert running_fleet(project, f"{taken(1, ours)}\n{taken(2, ours.replace('42', '43'))}") is None
    assert running_fleet(project, f"{taken(1, ours)}\n{taken(2, '')}") is None
