"""Where fast-agent takes a message for a command: this fails when one of the places moves."""

import inspect
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import fast_agent
import pytest
from fast_agent.agents.llm_decorator import LlmDecorator
from fast_agent.llm.fastagent_llm import FastAgentLLM

from pallas.executors.fastagent import commands_seam
from pallas.model import Fault


def test_the_command_is_looked_up_where_we_replace_it() -> None:
    assert f"startswith({commands_seam.COMMAND})" in inspect.getsource(FastAgentLLM.generate)
    assert commands_seam.COMMAND in inspect.getsource(LlmDecorator._persist_history)


@pytest.mark.slow
def test_nothing_else_that_an_agent_runs_knows_the_command() -> None:
    places = {
        found.name
        for found in pkgutil.walk_packages(fast_agent.__path__, "fast_agent.", onerror=lambda _: None)
        if found.name.startswith(("fast_agent.agents.", "fast_agent.llm.", "fast_agent.core."))
        and (spec := find_spec(found.name)) is not None
        and spec.origin is not None
        and commands_seam.COMMAND in Path(spec.origin).read_text("utf-8")
    }
    assert places == {each.__name__ for each in commands_seam.PLACES}


def test_after_it_no_text_is_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in commands_seam.PLACES:
        monkeypatch.setattr(place, commands_seam.COMMAND, "***SAVE_HISTORY")
    commands_seam.install()
    first = [vars(place)[commands_seam.COMMAND] for place in commands_seam.PLACES]
    commands_seam.install()
    assert [vars(place)[commands_seam.COMMAND] for place in commands_seam.PLACES] == first
    assert not any("***SAVE_HISTORY x".startswith(each) for each in first)


def test_a_place_that_moved_keeps_agents_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(commands_seam.PLACES[0], commands_seam.COMMAND)
    with pytest.raises(Fault, match="callers might write files"):
        commands_seam.install()
