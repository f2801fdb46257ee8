"""The generator of odd MCP servers: a client that bears everything can use each sound tool of each server."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.odd_result_faults import RESULT_FAULTS
from support.odd_server_program import Message, OddEngine
from support.odd_servers import MOST_FAULTS, OddServer, covering, odd_server
from support.odd_stress_faults import STRESS_FAULTS
from support.odd_tool_faults import TOOL_FAULTS
from support.odd_transport_faults import TRANSPORT_FAULTS
from support.odd_wire_faults import WIRE_FAULTS

FAULTS = {**TOOL_FAULTS, **WIRE_FAULTS, **RESULT_FAULTS, **TRANSPORT_FAULTS, **STRESS_FAULTS}
SERVERS = [*covering(FAULTS), *(odd_server(seed, FAULTS) for seed in range(1, 376))]


def asked(engine: OddEngine, method: str, **params: Any) -> Message:
    """The answer to a request; what the server itself asks on the way is answered."""
    said = engine.hear({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
    if "method" in said[-1] and "id" in said[-1]:
        said = engine.hear({"jsonrpc": "2.0", "id": said[-1]["id"], "result": {}})
    last = [each for each in said if "method" not in each][-1]
    document = json.loads(engine.wire(last))
    answer: Message = document[0] if isinstance(document, list) else document
    assert str(answer["id"]) == "7"
    return {key: value for key, value in answer.items() if value is not None}


def listed(engine: OddEngine) -> list[Any]:
    """All items that are listed, asked for until a cursor comes again or nothing is new."""
    found: list[Any] = []
    params: dict[str, Any] = {}
    for _ in range(12):
        answer = asked(engine, "tools/list", **params)
        while "still loading" in answer.get("error", {}).get("message", ""):
            answer = asked(engine, "tools/list", **params)
        if "error" in answer:
            return []
        found += [item for item in answer["result"]["tools"] if item not in found]
        if not (cursor := answer["result"].get("nextCursor")):
            break
        params = {"cursor": cursor}
    return found


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.label)
def test_a_client_that_bears_everything_can_use_each_sound_tool(server: OddServer, tmp_path: Path) -> None:
    spec = server.spec()
    if "steps" in spec:
        spec["steps"]["file"] = str(tmp_path / "steps")
    engine = OddEngine(spec)
    assert "result" in asked(engine, spec["opening"])
    items = listed(engine)
    assert items or spec.get("tools_error")
    for tool in server.tools:
        if not items or not tool.is_sound:
            continue
        assert any(isinstance(item, dict) and item.get("name") == tool.name for item in items)
        answer = asked(engine, "tools/call", name=tool.name, arguments={})
        assert tool.reads or tool.is_answered(json.dumps(answer["result"]))


def test_a_seed_always_makes_the_same_server() -> None:
    assert [odd_server(seed, FAULTS).spec() for seed in range(1, 51)] == [
        odd_server(seed, FAULTS).spec() for seed in range(1, 51)
    ]


def test_the_default_servers_have_every_fault_and_none_has_many() -> None:
    chosen = [[fault.partition("(")[0] for fault in server.faults] for server in covering(FAULTS)]
    assert sorted(kind for each in chosen for kind in each) == sorted(FAULTS)
    assert max(map(len, chosen)) == MOST_FAULTS


def test_the_seeds_have_every_fault() -> None:
    found = {fault.partition("(")[0] for server in SERVERS[-375:] for fault in server.faults}
    assert found == {*FAULTS}
