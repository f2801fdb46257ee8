"""The tools that an instance found: those of its servers and its own."""

from pathlib import Path

from support.live import ECHO, agent_module, running, write_project


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
