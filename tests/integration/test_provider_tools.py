"""An agent without tools: no request to a model holds a key that is about tools."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from support.backends import backend, project
from support.live import ERAS, agent_module, ask, client, running, write_project
from support.providers import MODELS, Asked, Provider, provider

from pallas.fleet.fleet import Fleet
from pallas.invocation import Completion
from pallas.llm.llm_service import LlmService

ABOUT_TOOLS = frozenset(
    {"tools", "tool_choice", "parallel_tool_calls", "functions", "toolConfig", "tool_config"}
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def behind() -> AsyncIterator[Provider]:
    async with provider() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fleet(tmp_path_factory: pytest.TempPathFactory, behind: Provider) -> AsyncIterator[Fleet]:
    config: dict[str, Any] = {}
    for model in MODELS.values():
        config.update(behind.config(model))
    agents = {name: agent_module(name, model=model) for name, model in MODELS.items()}
    async with running(write_project(tmp_path_factory.mktemp("tools"), agents, config=config)) as found:
        yield found


def _about_tools(asked: Asked) -> set[str]:
    return ABOUT_TOOLS & asked.body.keys()


@pytest.mark.parametrize("name", MODELS)
async def test_an_agent_without_tools_sends_none_and_no_choice_among_them(
    fleet: Fleet, behind: Provider, name: str
) -> None:
    # AG-31
    behind.asked.clear()
    for era in ERAS:
        async with client(fleet, name, era=era) as connected:
            assert await ask(connected, "hi") == "ok"
            for params in (
                {"tool_choice": "auto", "extra": {"parallel_tool_calls": True}},
                {"tools_allowlist": ["none_of_this_name"], "tool_choice": "none"},
            ):
                meta: Any = {"local.pallas/params": params}
                result = await connected.call_tool("send_message", {"message": "hi"}, meta=meta)
                assert not result.is_error, result
    assert len(behind.asked) == 6
    assert [_about_tools(each) for each in behind.asked] == [set()] * 6


@pytest.mark.parametrize("name", MODELS)
async def test_a_handlers_question_has_no_tools(behind: Provider, name: str) -> None:
    # AG-31
    behind.asked.clear()
    kind, _, model = MODELS[name].partition(".")
    base = str(behind.config(MODELS[name])[kind]["base_url"])
    entry = backend("one", model, provider=kind, base_url=base, api_key="none")
    service = LlmService(lambda: project(entry))
    try:
        wanted = Completion(
            model, [{"role": "user", "content": "hi"}], {"extra": {"parallel_tool_calls": True}}
        )
        answer = await service.completer(agent="adder", thread="t").complete(wanted)
    finally:
        await service.close()
    assert answer.content == "ok"
    assert [_about_tools(each) for each in behind.asked] == [set()]
