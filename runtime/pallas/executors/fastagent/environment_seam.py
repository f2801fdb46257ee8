"""The shell tool: its environment, which would be all of the fleet's, and its folder for long output.

An agent with skills makes two such tools and uses one. fast-agent removes only the folder of that one, when
the agent ends.

``tests/contract/test_hooks.py`` fails when the wrapped code changes.
"""

import os
import shutil
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fast_agent.agents.mcp_agent import McpAgent
from fast_agent.tools import local_shell_executor

from pallas.mcp_client.library_hooks import Hook
from pallas.processes.child_environment import program_environment


def _of_shells(original: Callable[..., Any]) -> Callable[..., Any]:
    def build_child_environment(
        *,
        active_home: Any,
        no_home: bool = False,
        base: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> dict[str, str]:
        base = program_environment({}) if base is None else base
        built: dict[str, str] = original(
            active_home=active_home, no_home=no_home, base=base, overrides=overrides
        )
        return built

    return build_child_environment


def _removing_output(original: Callable[..., None]) -> Callable[..., None]:
    """Remove the folder of a shell tool that is released, or with the process."""

    def _activate_shell_runtime(self: McpAgent, activation_reason: str | None, **options: Any) -> None:
        original(self, activation_reason, **options)
        shell = self.shell_runtime
        if shell is not None and (folder := shell._retained_output_directory) is not None:
            weakref.finalize(shell, _remove, folder, os.getpid())

    return _activate_shell_runtime


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and no process that it has forked, which ends earlier
        shutil.rmtree(folder, ignore_errors=True)


HOOK: Final = Hook(
    "environment.shell",
    local_shell_executor,
    "build_child_environment",
    ("active_home", "no_home", "base", "overrides"),
    _of_shells,
)
OUTPUT: Final = Hook(
    "environment.shell_output",
    McpAgent,
    "_activate_shell_runtime",
    ("self", "activation_reason", "working_directory", "access_modes", "show_shell_notice"),
    _removing_output,
)
