"""What an agent names and that was not there when the fleet started is taken over when it is there."""

from collections.abc import Callable
from pathlib import Path

import pytest
from support.live import agent_module, ask, client
from support.reloading import Saves, saying, watched
from support.waiting import until

from pallas.model import AgentState

SKILL = "---\nname: sum\ndescription: Sums up\n---\nSum it up.\n"
CARD = "---\nname: {name}\n---\n{text}\n"


def in_place(saves: Saves, path: str) -> None:
    saves.write(path, SKILL)


def folder_by_folder(saves: Saves, path: str) -> None:
    """Make a folder, and the next one when the watcher has had time to see it."""
    for parent in reversed(Path(path).parents[:-1]):
        (saves.root / parent).mkdir(exist_ok=True)
    saves.write(path, SKILL)


def moved(saves: Saves, path: str) -> None:
    """Make the folder of skills elsewhere in the project, and move it."""
    folder = Path(path).parent.parent
    saves.write(f"elsewhere/{Path(path).parent.name}/SKILL.md", SKILL)
    (saves.root / folder).parent.mkdir(parents=True, exist_ok=True)
    (saves.root / "elsewhere").rename(saves.root / folder)


@pytest.mark.parametrize("way", [in_place, folder_by_folder, moved])
@pytest.mark.parametrize("folder", ["skills", ".claude/skills"])
async def test_a_folder_of_skills_that_comes_is_taken_over(
    tmp_path: Path, way: Callable[[Saves, str], None], folder: str
) -> None:
    skills = {"skills": ["skills"]} if folder == "skills" else {}
    module = agent_module("desk", **skills).replace("You are desk.", "Apple. {{agentSkills}}")
    files = {"agents/other.py": agent_module("other")}
    async with watched(tmp_path, {"desk": module, "other": None}, saying("Apple."), files=files) as saves:
        way(saves, f"{folder}/sum/SKILL.md")
        await until(lambda: saves.versions()["desk"] == 2)
        assert saves.fleet.snapshot().agents[0].warnings == ()
        await saves.settled()
        saves.write(f"{folder}/two/SKILL.md", SKILL.replace("sum", "two"))
        await until(lambda: saves.versions()["desk"] == 3)


async def test_a_card_that_comes_into_a_folder_of_cards_is_taken_over(tmp_path: Path) -> None:
    keys = {"team": {"module": None, "card": "team"}, "second": {"module": None, "card": "team"}}
    files = {"team/team.md": CARD.format(name="team", text="Apple."), "team/notes.txt": "no card"}
    async with watched(
        tmp_path, {"team": None, "second": None}, saying("Apple.", "Pear."), keys=keys, files=files
    ) as saves:
        second = next(each for each in saves.fleet.agents if each.name == "second")
        await until(lambda: second.state is AgentState.READY)
        saves.write("team/second.md", CARD.format(name="second", text="Pear."))
        await until(lambda: second.snapshot().serves == "second")
        async with client(saves.fleet, "second") as caller:
            assert await ask(caller, "go") == "Pear. 1"


async def test_the_first_file_that_an_instruction_includes_starts_its_agent(
    tmp_path: Path,
) -> None:
    keys = {"desk": {"module": None, "card": "desk.md"}, "told": {"module": None, "card": "told.md"}}
    files = {
        "desk.md": CARD.format(name="desk", text="Apple. {{file:prompts/tone.md}}"),
        "told.md": "---\nname: told\nmessages: history/first.txt\n---\nPear.\n",
    }
    async with watched(
        tmp_path, {"desk": None, "told": None}, saying("Apple.", "Pear."), keys=keys, files=files
    ) as saves:
        states = {each.name: each for each in saves.fleet.agents}
        await until(lambda: states["desk"].state is AgentState.ERROR)
        await until(lambda: states["told"].state is AgentState.ERROR)
        saves.write("prompts/tone.md", "Be brief.\n")
        saves.write("history/first.txt", "---USER\nhi\n---ASSISTANT\nhello\n")
        await until(lambda: states["desk"].state is AgentState.READY)
        await until(lambda: states["told"].state is AgentState.READY)
