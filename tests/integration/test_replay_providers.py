"""A replay answers in the form of each provider, without a key: streams with reasoning, calls and texts."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from support.live import ECHO, agent_module, write_project
from support.providers import Provider, Reply, in_turn, provider
from support.replayed import assert_same, recorded, replayed

MODELS = {
    "chat": "generic.qwen3",
    "messages": "anthropic.claude-haiku-4-5",
    "responses": "responses.gpt-5-mini",
    "gemini": "google.gemini-2.5-flash",
}
LONG = "it said hi. " * 40 + "Ünï 😀\u2028end"
CALLS = (("echo__echo", {"text": "hi"}), ("echo__echo", {"text": "hi"}), ("echo__boom", {"text": "x"}))


def project_of(root: Path, models: Provider, agent: str) -> Path:
    config: dict[str, Any] = dict(models.config(MODELS[agent]))
    modules = {agent: agent_module(agent, ("echo",), model=MODELS[agent])}
    return write_project(root, modules, config={**config, **ECHO})


def forget_keys(root: Path) -> None:
    """Leave out the keys of providers."""
    path = root / "fastagent.config.yaml"
    config = yaml.safe_load(path.read_text("utf-8"))
    for section in config.values():
        if isinstance(section, dict):
            section.pop("api_key", None)
    path.write_text(yaml.safe_dump(config), "utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("agent", MODELS)
@pytest.mark.parametrize("is_timed", [False, True])
async def test_the_answers_of_a_provider_are_replayed(tmp_path: Path, agent: str, is_timed: bool) -> None:
    reasoning = "hm, let me think" if agent in ("chat", "messages") else ""
    first = Reply(text="I ask.", calls=CALLS, reasoning=reasoning)
    async with provider(in_turn(first, Reply(LONG))) as models:
        root = project_of(tmp_path, models, agent)
        recording = await recorded(root, agent, "say hi")
    forget_keys(root)
    outcome = await replayed(root, recording, is_timed=is_timed)
    assert_same(outcome)
    assert outcome.recording.first.answer == recording.first.answer
    asked = [each.response for each in recording.first.steps if each.step.kind == "model"]
    assert [each.response for each in outcome.recording.first.steps if each.step.kind == "model"] == asked
