"""What an agent's model can take is the agent's own, whichever agents were loaded in the process."""

from pathlib import Path
from typing import Any

import pytest
from support.judged import SKILL
from support.live import all_ready, running
from support.offline import model_record, offline_project
from support.waiting import until

from pallas.model import RunRequest

MODULE = """
from fast_agent import FastAgent

fast = FastAgent("{name}")


@fast.agent(name="{name}", instruction="You are {name}. {{{{agentSkills}}}}", skills=["skills"])
async def main() -> None: ...
"""


async def requests_of(root: Path, *names: str) -> dict[str, dict[str, Any]]:
    """What the model is asked by each agent of a fleet of these agents."""
    keys = {
        "eye": {"model_capabilities": {"vision": True}},
        "ear": {"model_capabilities": {"max_output_tokens": 700}},
        "nose": {},
    }
    offline_project(
        root,
        {name: MODULE.format(name=name) for name in names},
        'rules:\n  - say: "yes"\n',
        keys={name: keys[name] for name in names},
        top={"bind": "127.0.0.1"},
        files={"skills/counting/SKILL.md": SKILL},
    )
    found = {}
    async with running(root, database="memory") as fleet:
        await until(lambda: all_ready(fleet), timeout=60)
        for name in names:
            await fleet.kernel.run(RunRequest(name, "What is there?", run_id=name))
            found[name] = dict(model_record(fleet).requests[-1])
    return found


def tools_of(request: dict[str, Any]) -> set[str]:
    return {tool["function"]["name"] for tool in request["tools"]}


@pytest.mark.parametrize("names", [("eye", "ear", "nose"), ("nose", "ear", "eye")])
async def test_an_agent_asks_the_same_whichever_others_there_are(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    together = await requests_of(tmp_path / "all", *names)
    assert "attach_media" in tools_of(together["eye"])
    for name in ("ear", "nose"):
        assert "attach_media" not in tools_of(together[name])
        (alone,) = (await requests_of(tmp_path / name, name)).values()
        for request in (alone, together[name]):
            del request["messages"]  # the folder of the skills
        assert alone == together[name]
