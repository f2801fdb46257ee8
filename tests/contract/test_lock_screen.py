"""A locked server as an agent's servers show it: what is held is in no list, and cannot be used."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.live import running
from support.locked import ORDER, SHOP, STOCK, calls_of, list_now, locked_project
from support.waiting import until

from pallas.executors.fastagent.downstreams_seam import Downstreams, downstreams_of, sharing


@asynccontextmanager
async def first_agent(root: Path, **options: Any) -> AsyncIterator[tuple[Any, Downstreams]]:
    """The agent's first instance and its servers."""
    locked_project(root, **options)
    async with running(root) as fleet:
        executor: Any = fleet.agents[0].executor
        (instance,) = executor._instances.values()
        found = downstreams_of(instance.agent)
        assert found is not None
        yield instance.agent, found


async def test_what_is_held_is_in_no_list_and_cannot_be_used(tmp_path: Path) -> None:
    async with first_agent(tmp_path) as (_, found):
        assert [each.name for each in (await found.list_tools()).tools] == ["shop__order", "shop__stock"]
        greet = {"name": "greet", "description": "Say hello to mallory."}
        list_now(tmp_path, {**SHOP, "tools": [{**ORDER, "description": "Other."}, STOCK], "prompts": [greet]})
        await until(lambda: "shop__order" not in found.tools)
        await found.list_again(30)
        assert [each.name for each in (await found.list_tools()).tools] == ["shop__stock"]
        assert [each.name for each in (await found.list_mcp_tools("shop"))["shop"]] == ["stock"]
        assert (await found.list_prompts("shop"))["shop"] == []
        assert found.tool_catalog().server_tool_names("shop") == ("stock",)
        result = await found.call_tool("shop__order", {})
        assert result.is_error
        assert calls_of(tmp_path) == []
        refused = await found.get_prompt("greet", server="shop")
        assert refused.messages == []
        assert not (await found.call_tool("shop__stock", {})).is_error
        assert calls_of(tmp_path) == ["stock"]


@pytest.mark.parametrize("name", ["shop__order", "shop__unheard_of"])
async def test_a_held_tool_that_a_model_still_knows_is_refused_with_the_reason(
    tmp_path: Path, name: str
) -> None:
    async with first_agent(tmp_path) as (_, found):
        list_now(tmp_path, {**SHOP, "tools": [{**ORDER, "description": "Other."}, STOCK]})
        await until(lambda: "shop__order" not in found.tools)
        result = await found.call_tool(name, {})
        assert result.is_error
        assert "is held, because it differs from tools.lock" in str(result.content)
        assert calls_of(tmp_path) == []


async def test_a_copy_of_an_agent_has_the_screen_of_its_origin(tmp_path: Path) -> None:
    async with first_agent(tmp_path) as (agent, found):
        with sharing(agent):
            copy = Downstreams(["shop"], name="copy", context=agent.context)
        await copy.__aenter__()
        list_now(tmp_path, {**SHOP, "tools": [{**ORDER, "description": "Other."}, STOCK]})
        await until(lambda: "shop__order" not in found.tools)
        assert [*copy.tools] == ["shop__stock"]
        assert (await copy.call_tool("shop__order", {})).is_error
        await copy.close()
        assert found.is_connected("shop")
        assert not (await found.call_tool("shop__stock", {})).is_error
        assert calls_of(tmp_path) == ["stock"]


async def test_instructions_that_the_configuration_leaves_out_are_no_difference(tmp_path: Path) -> None:
    async with first_agent(tmp_path, server={"include_instructions": False}) as (_, found):
        assert (await found.get_server_instructions())["shop"][0] is None
        gate = found._screen._gate
        assert gate is not None and gate.changes() == ()
