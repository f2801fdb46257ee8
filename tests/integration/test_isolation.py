"""Nobody ever hears another caller's words: seen at the model, over the real provider path."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from support.live import MODERN_FIRST, agent_module, ask, client, running, write_project
from support.offline import offline_model
from support.waiting import until

from pallas.fleet.fleet import Fleet
from pallas.scripted.scripted_server import record_of

PARENT = """
from fast_agent import FastAgent

fast = FastAgent("parent")


@fast.agent(name="child", instruction="You are the child.")
@fast.agent(name="parent", instruction="You are the parent.", agents=["child"], default=True)
async def main() -> None: ...
"""
SCRIPT = """
rules:
  - when: {last: user, system: the parent, text: delegate}
    call: [{tool: agent__child, arguments: {message: "{{ last }}"}}]
  - when: {last: tool}
    say: "The child said: {{ result }}"
  - when: {last: user}
    say: "heard {{ turns }}: {{ last }}"
"""


def scripted_project(root: Path, agents: dict[str, str | None], **more: Any) -> Path:
    """A project on the offline model: what the model was sent can be read back."""
    return write_project(root, agents, **offline_model(SCRIPT, **more))


def seen_with(fleet: Fleet, text: str) -> list[str]:
    """The model inputs, as JSON, whose last message holds the text."""
    assert fleet.surfaces.offline_model.server is not None
    bodies = record_of(fleet.surfaces.offline_model.server).requests
    return [json.dumps(body["messages"]) for body in bodies if text in json.dumps(body["messages"][-1])]


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_two_callers_never_hear_each_other_also_after_a_restart(tmp_path: Path, era: str) -> None:
    # PR-19
    root = scripted_project(tmp_path, {"harper": None})
    for life in ("first life", "second life"):
        async with (
            running(root) as fleet,
            client(fleet, "harper", era=era, bearer="alice-token") as alice,
            client(fleet, "harper", era=era, bearer="bob-token") as bob,
        ):
            for number in range(3):
                await ask(alice, f"alice {life} {number}", conversation_id="alices")
                await ask(bob, f"bob {life} {number}", conversation_id="bobs")
                await ask(alice, f"alice alone {life}")
                await ask(bob, f"bob alone {life}")
            (last,) = seen_with(fleet, f"alice {life} 2")
            assert f"alice {life} 0" in last
            assert "bob" not in last
            (last,) = seen_with(fleet, f"bob {life} 2")
            assert "alice" not in last
            if life == "second life":
                assert "first life" not in json.dumps(record_of(fleet.surfaces.offline_model.server).requests)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_many_conversations_at_once_stay_apart(tmp_path: Path, era: str) -> None:
    # PR-19
    root = scripted_project(tmp_path, {"harper": None}, keys={"harper": {"max_instances": 3}})
    async with running(root) as fleet, client(fleet, "harper", era=era) as caller:

        async def talk(name: str) -> None:
            for number in range(4):
                answer = await ask(caller, f"<{name}> says {number}", conversation_id=name)
                assert answer == f"heard {number + 1}: <{name}> says {number}"

        await asyncio.gather(*(talk(f"caller{number}") for number in range(12)))
        for number in range(12):
            (last,) = seen_with(fleet, f"<caller{number}> says 3")
            others = [f"<caller{other}>" for other in range(12) if other != number]
            assert not any(other in last for other in others)


async def test_a_sub_agent_keeps_nothing_for_the_next_conversation(tmp_path: Path) -> None:
    # PR-19
    root = scripted_project(tmp_path, {"parent": PARENT}, keys={"parent": {"max_instances": 1}})
    async with running(root) as fleet, client(fleet, "parent") as caller:
        first = await ask(caller, "delegate the alpha secret", conversation_id="one")
        assert "alpha" in first
        await ask(caller, "delegate the beta secret", conversation_id="two")
        assert fleet.surfaces.offline_model.server is not None
        bodies = [
            json.dumps(body["messages"]) for body in record_of(fleet.surfaces.offline_model.server).requests
        ]
        assert sum("the child" in body.lower() for body in bodies) >= 2
        assert not any("alpha" in body and "beta" in body for body in bodies)


async def test_the_history_an_agent_is_given_reaches_its_model_once(tmp_path: Path) -> None:
    # PR-18
    root = scripted_project(tmp_path, {"harper": None})
    rows = [
        {"role": "user", "content": "earlier question"},
        {"role": "assistant", "content": "earlier answer"},
    ]
    async with running(root) as fleet, client(fleet, "harper") as caller:
        answer = await ask(caller, "and now", conversation_id="x", history=rows)
        assert answer == "heard 2: and now"
        again = await ask(caller, "once more", conversation_id="x", history=rows)
        assert again == "heard 3: once more"


async def test_a_pooled_agent_serves_a_new_conversation_without_building_an_agent(tmp_path: Path) -> None:
    # PR-19
    root = write_project(tmp_path, {"one": agent_module("one")})
    async with running(root) as fleet, client(fleet, "one") as caller:
        executor: Any = fleet.agents[0].executor
        assert executor._pool.size == 1
        for number in range(20):
            await ask(caller, "x", conversation_id=f"c{number}")
        assert executor._pool.size == 1


@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_an_agent_of_request_scope_starts_anew_with_each_call(tmp_path: Path, era: str) -> None:
    # PR-15
    keys = {"harper": {"instance_scope": "request"}}
    root = scripted_project(tmp_path, {"harper": None}, keys=keys)
    async with running(root) as fleet, client(fleet, "harper", era=era) as caller:
        for number in range(3):
            answer = await ask(caller, f"say {number}", conversation_id="same")
            assert answer == f"heard 1: say {number}"


async def test_a_conversation_scope_keeps_an_instance_for_each_conversation(tmp_path: Path) -> None:
    # PR-19
    keys = {"harper": {"instance_scope": "conversation", "max_instances": 2}}
    root = scripted_project(tmp_path, {"harper": None}, keys=keys)
    async with running(root) as fleet, client(fleet, "harper") as caller:
        for number in range(2):
            for name in ("one", "two", "three"):  # one more than there are instances
                answer = await ask(caller, f"{name} {number}", conversation_id=name)
                assert answer == f"heard {number + 1}: {name} {number}"
        executor: Any = fleet.agents[0].executor
        await until(lambda: executor._pool.size <= 2)
