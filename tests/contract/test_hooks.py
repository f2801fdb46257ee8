"""The functions of fast-agent that are wrapped: this fails when one moves or takes something else."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from support.live import running, write_project

from pallas.executors.fastagent import agent_loader, google_schema, log_seam
from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import AgentState, Fault


@pytest.mark.parametrize(
    "hook",
    (*agent_loader.HOOKS, google_schema.schema_hook()),
    ids=lambda hook: f"{hook.name}-{hook.attribute}",
)
def test_the_target_is_there_with_the_parameters_we_know(hook: Hook) -> None:
    # PR-29
    target = inspect.unwrap(vars(hook.owner)[hook.attribute])
    assert tuple(inspect.signature(target).parameters) == hook.parameters
    library_hooks.install(hook)
    library_hooks.install(hook)
    assert library_hooks.installed(hook.owner, hook.attribute).count(hook.name) == 1


def test_fast_agent_asks_the_functions_that_are_wrapped() -> None:
    # A wrapper around what nobody calls any more would do nothing, and say nothing.
    from fast_agent import context
    from fast_agent.agents import mcp_agent
    from fast_agent.mcp import sampling
    from fast_agent.tools import elicitation, local_shell_executor, shell_runtime

    def source(function: Any) -> str:
        return inspect.getsource(inspect.unwrap(function))

    assert "await configure_logger(" in source(context.initialize_context)
    assert "create_sampling_llm(" in source(sampling.sample)
    assert "build_child_environment(" in inspect.getsource(local_shell_executor)
    assert inspect.getsource(mcp_agent).count("self._activate_shell_runtime(") == 3
    assert "self._retained_output_directory = Path(" in inspect.getsource(shell_runtime)
    assert "get_elicitation_input_callback()" in inspect.getsource(elicitation)


def test_a_target_that_takes_something_else_is_refused_and_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def moved(config: Any, *, trigger: bool) -> None: ...

    hook = log_seam.HOOK
    monkeypatch.setattr(hook.owner, hook.attribute, moved)
    with pytest.raises(Fault, match=rf"hook {hook.name}: .*takes \(config, trigger\)"):
        library_hooks.install(hook)
    assert getattr(hook.owner, hook.attribute) is moved


async def test_an_agent_does_not_start_on_a_fast_agent_that_changed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # PR-29: loudly, and before anything goes out without what the hook is for
    async def initialize(config: Any, another: Any) -> None: ...

    monkeypatch.setattr(log_seam.HOOK.owner, log_seam.HOOK.attribute, initialize)
    async with running(write_project(tmp_path, {"desk": None})) as fleet:
        (agent,) = fleet.agents
        assert agent.state is AgentState.ERROR
        assert "takes (config, another), not (config)" in agent.reason
        assert "fast-agent" in agent.reason
