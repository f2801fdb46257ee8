"""A workbench that polls a fleet elsewhere, scraped as Prometheus would scrape it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.live import write_project
from support.ports import free_ports
from support.served import served
from support.terminal import needs_tmux, terminal

pytestmark = [needs_tmux, pytest.mark.pty]


@pytest.mark.slow
def test_the_health_of_attached_agents_is_scraped_from_a_port_of_the_workbench(tmp_path: Path) -> None:
    # PI-16
    far = write_project(tmp_path / "far", {"well": None, "ill": "raise SystemExit(3)"})
    here = write_project(tmp_path / "here", {"own": None})
    with served(far, XDG_STATE_HOME=str(tmp_path / "state")) as fleet:
        settings = tmp_path / "config" / "pallas"
        settings.mkdir(parents=True)
        saved = {"instances": [{"url": fleet.registry, "attached": True}]}
        (settings / "workbench.instances.json").write_text(json.dumps(saved))
        (port,) = free_ports(1)
        environment = {
            "XDG_STATE_HOME": str(tmp_path / "state"),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PALLAS_WORKBENCH_METRICS_PORT": str(port),
            "DAEDALUS_MCP_HEALTH_INTERVAL": "1",
        }
        label = fleet.registry.removeprefix("http://")
        command = f"{sys.executable} -m pallas.server dev {here}; echo left=$?"
        with terminal(command, environment=environment) as desk:
            desk.until("own")
            _until_scraped(port, {(label, "well"): 1.0, (label, "ill"): 0.0})
            foreign = httpx2.get(
                f"http://127.0.0.1:{port}/metrics",
                headers={"host": "evil.example"},
                trust_env=False,
                timeout=60,
            )
            assert foreign.status_code == 421
            desk.keys("C-q")
            desk.until("left=0")
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60)


@pytest.mark.slow
def test_a_port_that_cannot_be_had_is_reported_and_the_workbench_works(tmp_path: Path) -> None:
    here = write_project(tmp_path / "here", {"own": None})
    environment = {
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "PALLAS_WORKBENCH_METRICS_PORT": "many",
    }
    command = f"{sys.executable} -m pallas.server dev {here}; echo left=$?"
    with terminal(command, environment=environment) as desk:
        desk.until("PALLAS_WORKBENCH_METRICS_PORT", "own")
        desk.keys("C-q")
        desk.until("left=0")


def _until_scraped(port: int, expected: Mapping[tuple[str, str], float], timeout: float = 60) -> None:
    deadline = monotonic() + timeout
    found: dict[tuple[str, str], float] = {}
    while monotonic() < deadline:
        try:
            text = httpx2.get(f"http://127.0.0.1:{port}/metrics", trust_env=False, timeout=60).text
        except httpx2.HTTPError:
            text = ""
        found = {
            (sample.labels["instance"], sample.labels["agent"]): sample.value
            for family in text_string_to_metric_families(text)
            if family.name == "daedalus_agent_health"
            for sample in family.samples
        }
        if found == expected:
            return
        sleep(0.1)
    raise AssertionError(f"scraped {found}, not {expected}")
