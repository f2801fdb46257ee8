"""What the check of cards needs of fast-agent: it refuses the same cards, and neither fetches nor imports."""

from pathlib import Path

import pytest
import yaml
from fast_agent.core.agent_card_loader import load_agent_cards
from fast_agent.core.exceptions import AgentConfigError

from pallas.config.cards import read_cards
from pallas.executors.fastagent.card_seam import card_mistakes

REFUSED = {
    "name": {"name": ""},
    "servers": {"servers": {"a": "b"}},
    "human_input": {"human_input": "perhaps"},
    "cwd": {"cwd": 3},
    "tool_hooks": {"tool_hooks": ["a"]},
    "messages": {"messages": "gone.json"},
    "schema_version": {"schema_version": "one"},
    "subagents": {"subagents": "many"},
    "sequence": {"type": "chain", "sequence": {"a": 1}},
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_fast_agent_refuses_is_found_with_the_key_and_no_path(tmp_path: Path, key: str) -> None:
    path = tmp_path / "card.yaml"
    path.write_text(yaml.safe_dump({"instruction": "Hi.", **REFUSED[key]}, sort_keys=False))
    with pytest.raises(AgentConfigError):
        load_agent_cards(path)
    (card,) = read_cards(tmp_path, path).cards
    (found,) = card_mistakes(tmp_path, card, "agents.one.card")
    assert found.level == "error"
    assert str(tmp_path) not in str(found)
    if key != "messages":
        assert key in found.problem


def test_a_right_card_is_taken_without_its_includes_and_tools(tmp_path: Path) -> None:
    path = tmp_path / "card.md"
    path.write_text(
        "---\nfunction_tools: ['nowhere.py:tool']\n---\n{{url:http://127.0.0.1:9/none}} {{file:gone.md}}\n"
    )
    (card,) = read_cards(tmp_path, path).cards
    assert card_mistakes(tmp_path, card, "agents.one.card") == ()
