"""Whom a caller may not run is not run for it by a model either, and looks like nobody."""

import json
from pathlib import Path

from support.granted import TOKENS, auth, rules
from support.live import all_ready, ask, client, running
from support.peered import peered_project
from support.waiting import until

from pallas.model import RunStarted


async def test_a_model_asks_its_peers_with_the_grants_of_its_caller(tmp_path: Path) -> None:
    allowed = {"token:ada": ["run:agents"], "token:bob": ["run:agents:desk", "run:agents:writer"]}
    root = peered_project(tmp_path / "p", top={"auth": auth(), "rbac": rules(allowed)})
    async with running(root) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        async with client(fleet, "desk", bearer=TOKENS["ada"]) as ada:
            assert json.loads(await ask(ada, "add 2 3"))["total"] == 5
            said = json.loads(await ask(ada, "bearer"))["text"]
        assert said == "bearer None from desk"
        runs = [event for event in fleet.hub.since(0).events if isinstance(event, RunStarted)]
        assert [run.agent for run in runs] == ["desk", "adder", "desk", "teller"]
        assert {(run.identity, run.principal) for run in runs} == {(runs[0].identity, runs[0].principal)}
        before = fleet.hub.seq
        async with client(fleet, "desk", bearer=TOKENS["bob"]) as bob:
            refused = await ask(bob, "add 2 3")
            assert "there is no such peer" in refused
            # Nor does one that it may run do so for it.
            assert "there is no such peer" in await ask(bob, "ask the writer 9")
        started = [event.agent for event in fleet.hub.since(before).events if isinstance(event, RunStarted)]
        assert started == ["desk", "desk", "writer"]
