"""Where fast-agent keeps the tools that an instance found, and the filters that connections leave behind."""

import logging
from pathlib import Path

import pytest
from fast_agent.mcp.mcp_connection_manager import MCPConnectionManager
from support.live import ECHO, agent_module, running, write_project

from pallas.executors.fastagent import log_seam
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook


async def test_a_warm_instance_knows_the_tools_of_its_servers_and_its_own(tmp_path: Path) -> None:
    source = agent_module("one", ("echo",)).replace(
        'fast = FastAgent("one")',
        'fast = FastAgent("one")\n\n\ndef add(a: int) -> int:\n    """Add one."""\n    return a + 1\n',
    )
    source = source.replace("servers=['echo']", "servers=['echo'], function_tools=[add]")
    async with running(write_project(tmp_path, {"one": source}, config=ECHO)) as fleet:
        executor = fleet.agents[0].executor
        assert executor is not None
        found = executor.info.tools
        names = {each.server: [tool.name for tool in each.tools] for each in found}
        assert names == {"": ["add"], "echo": ["echo", "boom", "slow"]}
        echo = next(tool for each in found for tool in each.tools if tool.name == "echo")
        assert echo.description == "Say it again."
        assert '"text"' in echo.input_schema


@pytest.mark.parametrize("hook", log_seam.ONE_FILTER, ids=lambda hook: hook.attribute)
def test_connection_managers_add_one_filter_between_them(hook: Hook) -> None:
    library_hooks.install(hook)
    managers = [MCPConnectionManager.__new__(MCPConnectionManager) for _ in range(3)]
    for manager in managers:
        for name in (
            "_mcp_sse_filter_added",
            "_mcp_streamable_http_filter_added",
            "_mcp_oauth_cancel_filter_added",
        ):
            setattr(manager, name, False)
    getattr(managers[0], hook.attribute)()
    before = filters()
    for manager in managers:
        getattr(manager, hook.attribute)()
    assert filters() == before
    assert before > 0


def filters() -> int:
    loggers = [
        each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)
    ]
    return sum(len(each.filters) for each in loggers)
