"""An instruction that includes a file which is not there names the path."""

from pathlib import Path

import pytest
from support.live import agent_module, running, write_project

from pallas.cli.check import check

CARD = "---\nname: card\n---\nYou answer.\n{{file:prompts/there.md}}{{file_silent:prompts/never.md}}\n"


async def test_an_included_file_that_is_not_there_is_named_by_check_and_by_the_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = agent_module("coded").replace("You are coded.", "Do {{file:prompts/theer.md}} now.")
    keys = {"card": {"module": None, "card": "card.md"}}
    files = {"card.md": CARD, "prompts/there.md": "Be brief."}
    root = write_project(tmp_path, {"card": None, "coded": module}, keys=keys, files=files)
    (root / "card.md").write_text(CARD + "{{file:prompts/gone.md}}\n")
    assert check(root) == 2
    tail = "which does not exist; paths start at the project's folder"
    said = {
        "card": f"card.md:6: agents.card.instruction: includes prompts/gone.md, {tail}",
        "coded": "agents/coded.py:7: agents.coded.instruction: includes prompts/theer.md, "
        f"{tail}; did you mean prompts/there.md",
    }
    assert capsys.readouterr().err.splitlines() == list(said.values())
    async with running(root) as fleet:
        health = {each.name: each.health for each in fleet.snapshot().agents}
        for name, words in said.items():
            assert health[name].status.value == "error"
            assert words in health[name].message
    (root / "card.md").write_text(CARD)
    (root / "prompts" / "theer.md").write_text("it")
    assert check(root) == 0
