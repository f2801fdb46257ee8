"""An agent is ready only if one was constructed."""

from pathlib import Path

import pytest
from support.live import all_ready, ask, client, running, write_project
from support.waiting import until

from pallas.health.public_reasons import for_callers
from pallas.model import AgentState, HealthStatus

CLASS = """
from fast_agent import FastAgent
from fast_agent.agents.agent_types import AgentConfig
from fast_agent.agents.tool_agent import ToolAgent

fast = FastAgent("x")


class Mine(ToolAgent):
    def __init__(self, config: AgentConfig{more}, context=None):
        super().__init__(config, [], context)
        {body}


@fast.custom(Mine, name="mine", instruction="You answer.")
async def main(): ...
"""
RAISES = CLASS.format(more="", body='raise AttributeError("cannot be made")')
LINE = RAISES.splitlines().index('        raise AttributeError("cannot be made")') + 1
UNFIT = CLASS.format(more=", colour", body="self.colour = colour")
"""Written for another version of fast-agent: it takes what this one does not give."""
CHILD = (
    RAISES.replace('name="mine"', 'name="below"')
    + """

@fast.agent("top", instruction="x", agents=["below"], default=True)
async def other(): ...
"""
)


@pytest.mark.parametrize(
    ("source", "place", "why"),
    [
        (RAISES, f"agents/mine.py:{LINE}", "AttributeError: cannot be made"),
        (UNFIT, "agents/mine.py:", "TypeError: "),
        (CHILD, f"agents/mine.py:{LINE}", "AttributeError: cannot be made"),
    ],
    ids=["raises", "unfit", "child"],
)
async def test_an_agent_whose_class_cannot_be_constructed_is_an_error_with_its_line(
    tmp_path: Path, source: str, place: str, why: str
) -> None:
    write_project(tmp_path, {"mine": source, "fine": None})
    async with running(tmp_path, watch=True) as fleet:
        agents = {each.name: each for each in fleet.snapshot().agents}
        assert agents["fine"].state is AgentState.READY
        mine = agents["mine"]
        assert (mine.state, mine.health.status) == (AgentState.ERROR, HealthStatus.ERROR)
        assert mine.health.message.startswith(place)
        assert why in mine.health.message
        async with client(fleet, "mine") as one:
            answer = await one.call_tool("send_message", {"message": "x"})
            (block,) = answer.content
            assert answer.is_error
            assert for_callers(mine.health.message) in block.text  # type: ignore[union-attr]
        (tmp_path / "agents" / "mine.py").write_text(RAISES.replace("raise AttributeError", "str"))
        await until(lambda: all_ready(fleet))
        async with client(fleet, "mine") as one:
            assert await ask(one, "hello") == "hello"
