"""The tests of the project's agents, on screen."""

from .agent_tests_pane import AgentTestsPane

__all__ = ["AgentTestsPane"]
