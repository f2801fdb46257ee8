"""Wrong request_params have their line; cards that a module loads only when it is run are said."""

from pathlib import Path

import pytest
from support.live import ask, client, running, write_project

from pallas.cli.app import run
from pallas.model import AgentState


def checked(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str]]:
    status = run(["check", str(root), "--offline", *more])
    return status, capsys.readouterr().err.splitlines()


CODED = """
from fast_agent import FastAgent, RequestParams

fast = FastAgent("coded")


@fast.agent(
    "coded",
    instruction="x",
    request_params=RequestParams(
        maxTokens=5,
        {name}={value},
    ),
)
async def main() -> None: ...
"""
CARD = "---\nname: card\nrequest_params:\n  maxTokens: 5\n  {name}: {value}\n---\nYou answer.\n"
KEYS = {"card": {"module": None, "card": "card.md"}}
WRONG = {
    ("temprature", "0.5"): (
        0,
        "request_params have no temprature, so it has no effect; did you mean temperature",
    ),
    ("max_token", "5"): (0, "request_params have no max_token, so it has no effect; did you mean max_tokens"),
    ("temperature", "'hotplanted'"): (
        2,
        "request_params.temperature should be a valid number, unable to parse",
    ),
    ("use_history", "'planted'"): (2, "request_params.use_history should be a valid boolean, unable to"),
    ("topP", "[1]"): (2, "request_params.topP should be a valid number"),
}


@pytest.mark.parametrize("written", WRONG, ids=str)
async def test_a_wrong_parameter_is_said_with_its_line_and_without_its_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], written: tuple[str, str]
) -> None:
    name, value = written
    files = {"card.md": CARD.format(name=name, value=value)}
    agents = {"card": None, "coded": CODED.format(name=name, value=value)}
    root = write_project(tmp_path, agents, keys=KEYS, files=files)
    status, lines = checked(root, capsys)
    wanted, said = WRONG[written]
    level = "" if wanted else "warning: "
    starts = [
        f"card.md:5: {level}agents.card.card: {said}",
        f"agents/coded.py:12: {level}agents.coded.module: {said}",
    ]
    assert status == wanted
    assert len(lines) == 2
    assert all(any(line.startswith(start) for line in lines) for start in starts), lines
    assert "planted" not in "".join(lines)
    async with running(root) as fleet:
        stories = {each.name: each.story for each in fleet.agents}
    if wanted:
        assert stories["card"].startswith(starts[0]), stories
        field = "temperature" if name == "temperature" else name
        assert (
            f"ValidationError: RequestParams.{field}: input should be a valid"
            in stories["coded"].split("\n")[0]
        )


async def test_right_parameters_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"card.md": CARD.format(name="top_p", value="0.5")}
    agents = {"card": None, "coded": CODED.format(name="topP", value="float('0.5')")}
    root = write_project(tmp_path, agents, keys=KEYS, files=files)
    assert checked(root, capsys) == (0, [])


LOADS = """
import asyncio

from fast_agent import FastAgent

fast = FastAgent("loads")


async def main() -> None:
    fast.load_agents("cards")
    async with fast.run() as agent:
        await agent.interactive()


if __name__ == "__main__":
    asyncio.run(main())
"""
AT_THE_TOP = 'from fast_agent import FastAgent\n\nfast = FastAgent("loads")\nfast.load_agents("cards")\n'
CALLED = """
from fast_agent import FastAgent

fast = FastAgent("loads")


def add() -> None:
    fast.load_agents("cards")


add()
"""
ONE = "---\nname: one\n---\nYou answer.\n"


SAID = (
    "agents/loads.py:10: agents.loads.module: loads its cards in the function main, which an import does "
    "not run; write `card: cards` in place of module:, or load them at the top"
)


@pytest.mark.parametrize("more", [(), ("--import",)], ids=["text", "import"])
def test_check_says_of_cards_that_only_a_run_of_the_script_loads_what_to_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    root = write_project(tmp_path, {"loads": LOADS}, files={"cards/one.md": ONE})
    assert checked(root, capsys, *more) == (2, [SAID])


async def test_so_does_the_fleet(tmp_path: Path) -> None:
    root = write_project(tmp_path, {"loads": LOADS}, files={"cards/one.md": ONE})
    async with running(root) as fleet:
        assert fleet.agents[0].state is AgentState.ERROR
        assert fleet.agents[0].story == SAID


@pytest.mark.parametrize("text", [AT_THE_TOP, CALLED], ids=["top", "called"])
async def test_cards_that_the_import_loads_are_served(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    root = write_project(tmp_path, {"loads": text}, files={"cards/one.md": ONE})
    assert checked(root, capsys) == (0, [])
    async with running(root) as fleet, client(fleet, "loads") as caller:
        assert await ask(caller, "hello") == "hello"
