"""A folder of skills that an agent names and that is not there: in the Agents pane, until it is there."""

from pathlib import Path

from support.live import agent_module
from support.reloading import saying, watched
from support.waiting import until

from pallas_tui.text import UNICODE
from pallas_tui.widgets.agents.agent_paragraphs import full_state_text
from pallas_tui.widgets.agents.agent_summary import Now, details

SKILL = "---\nname: sum\ndescription: Sums up\n---\nSum it up.\n"


async def test_a_missing_folder_of_skills_is_shown_with_its_line_until_it_is_there(tmp_path: Path) -> None:
    module = agent_module("desk", skills=["skills"])
    async with watched(tmp_path, {"desk": module}, saying("Apple."), probe=False) as saves:
        (agent,) = saves.fleet.snapshot().agents
        line = next(n for n, text in enumerate(module.splitlines(), 1) if "skills=" in text)
        said = (
            f"agents/desk.py:{line}: agents.desk.skills: there is no folder skills; an agent starts without "
            "these skills; create it, or correct the name"
        )
        assert agent.warnings == (said,)
        assert f"warning     {said}" in full_state_text(agent)
        shown = ["".join(text for text, _ in line) for line in details(agent, 60, 60, Now(0.0), UNICODE)]
        assert said in " ".join(text.strip() for text in shown)
        saves.write("skills/sum/SKILL.md", SKILL)
        saves.write("agents/desk.py", module + "# with skills\n")
        await until(lambda: saves.fleet.snapshot().agents[0].warnings == ())
