"""The credentials of a real fleet: a bearer through two agents to a downstream that notes what it gets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from support.live import MODERN_FIRST, agent_module, ask, client, running, write_project
from support.recording import Recorder, recording

from pallas.fleet.fleet import Fleet
from pallas.model.fingerprint import fingerprint
from pallas_tui.frame import FleetFrame
from pallas_tui.runs.credential_line import CredentialLine
from pallas_tui.runs.credential_requests import CredentialRequests

NOTE = "***CALL_TOOL rec__note " + json.dumps({"text": "x"})
DELEGATE = "***CALL_TOOL worker__send_message " + json.dumps({"message": NOTE})


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    async with recording() as found:
        yield found


def project(root: Path, recorder: Recorder, *, forward: bool) -> Path:
    """``lead`` asks ``worker``, which is always given the caller's key on the way to ``rec``."""
    agents = {"worker": agent_module("worker", ("rec",)), "lead": agent_module("lead", ("worker",))}
    write_project(root, agents)
    port = yaml.safe_load((root / "agents.yaml").read_text("utf-8"))["agents"]["worker"]["port"]
    file = root / "fastagent.config.yaml"
    config = yaml.safe_load(file.read_text("utf-8"))
    config["mcp"] = {
        "servers": {
            "rec": {"url": recorder.url, "forward_inbound_auth": True},
            "worker": {"url": f"http://127.0.0.1:{port}/mcp", "forward_inbound_auth": forward},
        }
    }
    file.write_text(yaml.safe_dump(config), "utf-8")
    return root


def lines(fleet: Fleet) -> list[CredentialLine]:
    requests = CredentialRequests()
    requests.absorb(FleetFrame(fleet.snapshot(), tuple(fleet.hub.since(0).events), 0.0))
    return requests.lines()


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_a_key_is_followed_through_two_agents(tmp_path: Path, recorder: Recorder, era: str) -> None:
    # PR-25
    async with running(project(tmp_path, recorder, forward=True)) as fleet:
        async with client(fleet, "lead", era=era, bearer="token-a") as caller:
            assert "noted" in await ask(caller, DELEGATE)
        found = lines(fleet)
    key = fingerprint("token-a")
    assert {line.fingerprint for line in found} == {key}
    asked = [(line.sender, line.to) for line in found if line.outcome]
    assert asked == [(found[0].sender, "lead"), ("lead", "worker")]
    (delegated,) = [line for line in found if line.outcome and line.to == "worker"]
    assert (found[0].depth, delegated.depth) == (0, 2)  # below the hop that asked
    assert delegated.runs[1] == found[0].run_id
    above = found[found.index(delegated) - 1]
    assert (above.sender, above.to, above.method, above.source) == (
        "lead",
        "worker",
        "tools/call",
        "forwarded",
    )
    assert ("worker", "rec", "tools/call") in [(line.sender, line.to, line.method) for line in found]
    assert not any(line.findings for line in found)
    assert "token-a" not in repr(found)


async def test_a_key_that_is_lost_on_the_way_can_be_seen(tmp_path: Path, recorder: Recorder) -> None:
    async with running(project(tmp_path, recorder, forward=False)) as fleet:
        async with client(fleet, "worker", bearer="token-a") as caller:
            await ask(caller, NOTE)
        async with client(fleet, "lead", bearer="token-a") as caller:
            await ask(caller, DELEGATE)
        found = lines(fleet)
    (arrived,) = [line for line in found if line.outcome and line.sender == "lead"]
    assert (arrived.to, arrived.source) == ("worker", "none")
    (sent,) = [
        line for line in found if (line.sender, line.to, line.method) == ("lead", "worker", "tools/call")
    ]
    assert sent.source == "none"
