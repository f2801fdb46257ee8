"""How fast-agent knows what a model takes: this fails when one of the places moves."""

from dataclasses import replace
from typing import Any

import pytest
from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.llm.fastagent_llm import FastAgentLLM
from fast_agent.llm.model_database import ModelDatabase
from fast_agent.llm.model_factory import ModelFactory

from pallas.config import Capabilities
from pallas.executors.fastagent import model_registry
from pallas.executors.fastagent.media_seam import take_declared


class Runtime:
    """Offers tools that depend on the model."""

    def __init__(self) -> None:
        self.info: Any = None

    def set_model_info(self, info: Any) -> None:
        self.info = info


class Model:
    """As much of a model as says what it takes."""

    model_name = "blind-1"
    model_info = FastAgentLLM.model_info
    resolved_model = FastAgentLLM.resolved_model
    _context_window_override = None

    def __init__(self) -> None:
        self._resolved_model_spec = ModelFactory.resolve_model_spec("generic.blind-1")


class Agent:
    """An agent with such a model."""

    def __init__(self) -> None:
        self.llm = Model()
        self.runtime = Runtime()

    def _local_filesystem_runtime(self) -> Runtime:
        return self.runtime


def test_the_places_are_there() -> None:
    for name in ("_local_filesystem_runtime", "_environment_filesystem_runtime"):
        assert callable(getattr(McpAgent, name))
    assert replace(Model().resolved_model, model_params=None).model_params is None


@pytest.fixture
def _blind() -> Any:
    model_registry.register("blind-1", Capabilities())
    yield
    ModelDatabase.unregister_runtime_model_params("blind-1")


@pytest.mark.usefixtures("_blind")
def test_each_agent_of_a_model_takes_what_it_declares() -> None:
    eye, ear = Agent(), Agent()
    take_declared(eye, Capabilities(vision=True))
    take_declared(ear, None)
    assert eye.llm.model_info.supports_vision
    assert eye.runtime.info.supports_vision
    assert not ear.llm.model_info.supports_vision
    take_declared(eye, None)
    assert not eye.llm.model_info.supports_vision
