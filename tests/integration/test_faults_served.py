"""Faults in a fleet of the workbench, and in one that serves them because it is allowed to."""

from pathlib import Path

import pytest
from support.live import ERAS
from support.offline import offline_project
from support.served import served
from support.waiting import until

from pallas.fleet.threaded_fleet import ThreadedFleet
from pallas.model import FleetState, Notice

FAULTS = "faults: [{to: scripted, what: 429, at: 1, retry_after: 0}]"
SCRIPT = 'rules: [{when: {last: user}, say: "three lamps"}]'


def project(root: Path) -> Path:
    return offline_project(root, {"desk": None}, SCRIPT, files={"faults.yaml": FAULTS})


@pytest.mark.slow
async def test_a_fleet_serves_faults_if_it_is_allowed_to_and_says_so(tmp_path: Path) -> None:
    with served(project(tmp_path / "p"), "--allow-faults") as fleet:
        await fleet.says("] running")
        await fleet.says("faults are injected into calls of models and tools: 429 to scripted at call 1")
        for era in ERAS:
            async with fleet.client("desk", era) as desk:
                result = await desk.call_tool("send_message", {"message": "How many?"})
            assert not result.is_error
        assert (await fleet.logs("fault injected: 429 into call 1 of scripted"))["agent"] == "desk"
        await fleet.logs("a model call failed: HTTP 429; retry 1 of 2")


async def test_the_workbench_says_that_faults_are_injected(tmp_path: Path) -> None:
    fleet = ThreadedFleet(project(tmp_path / "p"))
    fleet.start()
    try:
        await until(lambda: any("faults are injected" in text for text in notices(fleet)), timeout=60)
        assert fleet.snapshot().faults.startswith("429 to scripted at call 1 (")
    finally:
        fleet.stop()
    assert [text for text in notices(fleet) if "faults" in text] == [
        f"faults are injected into calls of models and tools: 429 to scripted at call 1 "
        f"({tmp_path / 'p' / 'faults.yaml'})"
    ]


async def test_a_workbench_shows_mistakes_in_the_file_of_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = project(tmp_path / "p")
    monkeypatch.chdir(root)
    (root / "other.yaml").write_text("faults:\n  - {to: scripted, what: fire, at: 1}\n")
    fleet = ThreadedFleet(root, faults=Path("other.yaml"))
    fleet.start()
    try:
        await until(lambda: fleet.snapshot().state is FleetState.FAILED, timeout=60)
        assert fleet.snapshot().error.startswith("other.yaml:2: faults[0].what: ")
    finally:
        fleet.stop()


def notices(fleet: ThreadedFleet) -> list[str]:
    return [each.text for each in fleet.since(0).events if isinstance(each, Notice)]
