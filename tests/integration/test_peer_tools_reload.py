"""The tools of a model follow its peers' code and its own entry, also where it is in another process."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.live import all_ready, ask, client, running
from support.offline import model_record
from support.peered import HANDLERS, peered_project
from support.waiting import until

from pallas.executors import ExecutorTurn
from pallas.fleet.delegation import Delegation
from pallas.fleet.fleet import Fleet
from pallas.model import Fault

pytestmark = pytest.mark.usefixtures("forked_children")


def agent(fleet: Fleet, name: str) -> Any:
    return next(each for each in fleet.agents if each.name == name)


async def tools(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """What the model of ``desk`` is shown in a turn that begins now."""
    async with client(fleet, "desk") as desk:
        assert await ask(desk, "hello") == "just hello"
    shown = model_record(fleet).requests[-1].get("tools") or ()
    return {each["function"]["name"]: each["function"]["parameters"] for each in shown}


@pytest.mark.slow
async def test_a_changed_class_and_a_changed_list_of_peers_are_seen_in_the_next_turn(tmp_path: Path) -> None:
    root = peered_project(tmp_path / "p", isolation="process")
    async with running(root, watch=True) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        assert list((await tools(fleet))["adder"]["properties"]) == ["a", "b", "note", "more"]
        (root / "hands.py").write_text(
            HANDLERS.replace("    b: int = 0\n", "    b: int = 0\n    c: int = 0\n")
        )
        await until(
            lambda: "c" in agent(fleet, "adder").executor.info.payload.json_schema["properties"], timeout=60
        )
        assert list((await tools(fleet))["adder"]["properties"]) == ["a", "b", "c", "note", "more"]
        async with client(fleet, "desk") as desk:
            assert json.loads(await ask(desk, "add 2 3"))["total"] == 5
        entries = yaml.safe_load((root / "agents.yaml").read_text())
        entries["agents"]["desk"]["peers"] = ["adder", "writer"]
        (root / "agents.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))
        await until(
            lambda: agent(fleet, "desk").config.peers == ("adder", "writer") and all_ready(fleet), timeout=60
        )
        assert list(await tools(fleet)) == ["adder", "writer"]
        # Its code does not decide: one that is no peer, and one that is not there, look alike (C10).
        turn = ExecutorTurn(run_id="none", agent="desk", text="x")
        refusals = set()
        for name in ("teller", "nobody"):
            try:
                await Delegation(fleet.context, fleet.messages).ask_peer(turn, name, "{}")
            except Fault as fault:
                refusals.add((fault.message, fault.system_code, fault.system_message, fault.system_retryable))
        assert len(refusals) == 1


async def test_a_model_that_had_no_peers_gets_its_first_one_as_a_tool(tmp_path: Path) -> None:
    root = peered_project(tmp_path / "p")
    entries = yaml.safe_load((root / "agents.yaml").read_text())
    peers = entries["agents"]["desk"].pop("peers")
    (root / "agents.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))
    async with running(root, watch=True) as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        assert not await tools(fleet)
        entries["agents"]["desk"]["peers"] = peers
        (root / "agents.yaml").write_text(yaml.safe_dump(entries, sort_keys=False))
        await until(lambda: agent(fleet, "desk").config.peers == tuple(peers), timeout=60)
        await until(lambda: all_ready(fleet), timeout=60)
        async with client(fleet, "desk") as desk:
            assert json.loads(await ask(desk, "add 2 3"))["total"] == 5
