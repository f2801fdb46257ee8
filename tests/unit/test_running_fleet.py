"""Taken ports: whose they are decides what the user is told."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.live import write_project

from pallas.config import Project, load_project
from pallas.fleet import running_fleet as module
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


@pytest.mark.parametrize(
    ("bind", "host"),
    [("127.0.0.2", "127.0.0.2"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]"), ("192.0.2.7", "192.0.2.7")],
)
def test_a_fleet_is_attached_to_where_it_listens(project: Project, bind: str, host: str) -> None:
    store_token("t", project.root, project.registry_port)
    found = running_fleet(replace(project, bind=bind), taken(project.registry_port, ""))
    assert found is not None
    assert found.origin == f"http://{host}:{project.registry_port}"
    assert found.text.endswith(f"at http://{host}:{project.registry_port}")


def test_a_fleet_that_has_no_token_for_other_machines_says_how_to_get_one(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int]] = []

    def refused(host: str, port: int) -> bool:
        asked.append((host, port))
        return False

    monkeypatch.setattr(module, "_asks_for_token", refused)
    ours = f" (process 42, pallas (test), in {project.root})"
    found = running_fleet(replace(project, bind="192.0.2.7"), taken(project.registry_port, ours))
    assert asked == [("192.0.2.7", project.registry_port)]
    assert found is not None
    assert found.origin == ""
    assert "since it listens on 192.0.2.7 and was started without PALLAS_CONTROL_TOKEN" in found.text
    assert "kill 42" in found.text
