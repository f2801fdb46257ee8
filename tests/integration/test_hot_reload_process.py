"""Agents in processes of their own are reloaded by whoever watches their files, as all others are."""

from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from support.live import ask, client
from support.reloading import Saves, module, saying, watched
from support.waiting import until

from pallas.model import AgentState

pytestmark = pytest.mark.usefixtures("forked_children")

WORDS = "from agents.words import WORD\n" + module("one", "@").replace("'@'", "WORD").replace('"@"', "WORD")
CARD = "---\nname: two\ntype: agent\n---\n{}\n"


def pid(saves: Saves, name: str) -> int | None:
    agent = saves.fleet.snapshot().agent(name)
    assert agent is not None
    assert agent.state is AgentState.READY
    return agent.pid


async def says(saves: Saves, name: str) -> str:
    async with client(saves.fleet, name) as caller:
        return await ask(caller, "hello")


def _card_for(root: Path) -> None:
    path = root / "agents.yaml"
    topology = yaml.safe_load(path.read_text())
    entry = topology["agents"]["two"]
    del entry["module"]
    entry["card"] = "cards/two.md"
    path.write_text(yaml.safe_dump(topology, sort_keys=False))


async def test_a_server_that_does_not_start_any_more_leaves_the_process_that_has_it(tmp_path: Path) -> None:
    async with watched(
        tmp_path,
        {"tools": module("tools", "Apple.", ("echo",))},
        saying("Apple.", "Birch."),
        probe=False,
        keys={"tools": {"isolation": "process"}},
    ) as saves:
        before, script = pid(saves, "tools"), (saves.root / "echo_server.py").read_text()
        mark = saves.fleet.hub.seq
        saves.write("echo_server.py", "import nothere_at_all\n")
        told = await saves.outcome("tools", mark)
        assert (told.outcome, told.place, told.version) == ("failed", "echo_server.py", 1)
        assert "server echo worked and no longer starts" in told.error
        assert pid(saves, "tools") == before
        async with client(saves.fleet, "tools") as caller:
            assert "echo:x" in await ask(caller, "use your tool")

        # One that does not work for the version before either keeps no edit from being live.
        (echo,) = (each for each in psutil.Process(before).children() if "echo_server.py" in each.cmdline())
        echo.kill()
        executor = saves.fleet.agents[0].executor
        assert executor is not None
        await until(lambda: executor.problems() == ("echo",))
        saves.write("agents/tools.py", module("tools", "Birch.", ("echo",)))
        await until(lambda: saves.versions()["tools"] == 2)
        assert await says(saves, "tools") == "Birch. 1"
        mark = saves.fleet.hub.seq
        saves.write("echo_server.py", script + "# again\n")
        assert (await saves.outcome("tools", mark)).outcome == "live"


@pytest.mark.slow
async def test_an_agent_in_its_own_process_is_reloaded_kept_and_moved_out_and_in(tmp_path: Path) -> None:
    isolated = {"isolation": "process"}
    async with watched(
        tmp_path,
        {"one": WORDS, "two": None, "three": module("three", "Apple.")},
        saying("Apple.", "Birch.", "Cedar.", "Delta."),
        probe=False,
        keys={"one": isolated, "two": isolated},
        files={"agents/words.py": "WORD = 'Apple.'\n", "cards/two.md": CARD.format("Apple.")},
        before=_card_for,
    ) as saves:
        first = {name: pid(saves, name) for name in ("one", "two")}

        # What its module imports, and a card at the same time.
        saves.write("agents/words.py", "WORD = 'Birch.'\n")
        saves.write("cards/two.md", CARD.format("Birch."))
        await until(lambda: saves.versions() == {"one": 2, "two": 2, "three": 1})
        assert {name: pid(saves, name) for name in first}.items().isdisjoint(first.items())
        assert [await says(saves, name) for name in first] == ["Birch. 1", "Birch. 1"]
        await until(lambda: len(saves.told()) >= 2)  # a version answers a moment before that is told
        assert {each.files for each in saves.told()} == {("agents/words.py",), ("cards/two.md",)}

        # A broken edit: the process of before goes on, and the place is told.
        before, mark = pid(saves, "one"), saves.fleet.hub.seq
        saves.write("agents/words.py", "WORD = 'Cedar.'\nimport ctypes\nWORD += nothing\n")
        told = await saves.outcome("one", mark)
        assert (told.outcome, told.place, told.version) == ("failed", "agents/words.py:3", 2)
        assert "NameError" in told.error
        assert pid(saves, "one") == before
        assert await says(saves, "one") == "Birch. 1"
        saves.write("agents/words.py", "WORD = 'Cedar.'\n")
        await until(lambda: saves.versions()["one"] == 3)
        assert await says(saves, "one") == "Cedar. 1"

        # In and out of its own process by what agents.yaml says.
        def swap(content: dict[str, Any]) -> None:
            content["agents"]["one"]["isolation"] = "none"
            content["agents"]["three"]["isolation"] = "process"

        saves.edit("agents.yaml", swap)
        await until(lambda: saves.versions() == {"one": 4, "two": 2, "three": 2})
        assert pid(saves, "one") is None
        assert psutil.pid_exists(pid(saves, "three") or 0)
        assert [await says(saves, name) for name in ("one", "three")] == ["Cedar. 1", "Apple. 1"]
        saves.write("agents/words.py", "WORD = 'Delta.'\n")  # and is followed where it is now
        await until(lambda: saves.versions()["one"] == 5)
        assert await says(saves, "one") == "Delta. 1"
        await until(lambda: any(each.agent == "three" for each in saves.told()))
        assert {each.outcome for each in saves.told() if each.agent in ("two", "three")} == {"live"}
