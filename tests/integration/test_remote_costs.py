"""What a remote agent of another Pallas reports that it cost."""

from pathlib import Path

import pytest
from support.kept import written
from support.live import MODERN_FIRST, all_ready, ask, client, running, write_project
from support.offline import offline_project
from support.waiting import until

from pallas.model import Cost, RunFinished

SCRIPT = "rules: [{say: 'turn {{ turns }}'}]"
PRICES = {"generic.scripted": {"input": 3.0, "output": 15.0}}


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_remote_run_costs_what_the_other_fleet_says(tmp_path: Path, era: str) -> None:
    there = offline_project(tmp_path / "there", {"near": None}, SCRIPT, top={"prices": PRICES})
    async with running(there, database="memory") as other:
        await until(lambda: all_ready(other), timeout=60)
        url = next(each.url for each in other.agents)
        entry = {"module": None, "kind": "remote", "url": url}
        here = write_project(tmp_path / "here", {"far": None}, keys={"far": entry})
        async with running(here, database="memory") as fleet:
            await until(lambda: all_ready(fleet), timeout=60)
            async with client(fleet, "far", era=era) as far:
                await ask(far, "hi")
            (run,) = (each for each in fleet.hub.since(0).events if isinstance(each, RunFinished))
            assert fleet.ledger is not None
            await written(fleet.ledger, run.run_id)
            (paid,) = (each for each in other.hub.since(0).events if isinstance(each, RunFinished))
            assert Cost.of(run) == Cost.of(paid)
            assert run.cost
            by_model = await fleet.ledger.costs.sums("model")
            assert [(each.key, each.cost) for each in by_model] == [("", run.cost)]
