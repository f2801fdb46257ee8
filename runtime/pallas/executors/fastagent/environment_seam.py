"""The environment of the shell tool: fast-agent gives it all of the fleet's.

``tests/contract/test_hooks.py`` fails when the wrapped code changes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fast_agent.tools import local_shell_executor

from pallas.child_environment import program_environment
from pallas.mcp_client.library_hooks import Hook


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


HOOK: Final = Hook(
    "environment.shell",
    local_shell_executor,
    "build_child_environment",
    ("active_home", "no_home", "base", "overrides"),
    _of_shells,
)
