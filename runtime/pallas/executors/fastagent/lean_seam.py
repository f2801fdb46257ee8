"""Skips work that fast-agent does for a terminal or repeats at every step: a third of a short run.

``tests/contract/test_lean_seam.py`` fails when the wrapped code changes.
"""

from typing import Any, Final

from fast_agent import paths
from fast_agent.config import Settings
from fast_agent.hooks import compaction
from fast_agent.skills import registry
from fast_agent.types import RequestParams

from pallas.mcp_client.library_hooks import Hook


def no_panels(agent: Any) -> None:
    """Skip the layout of the panels of questions and answers, which no user sees.

    ``quiet`` only keeps them from being written.
    """
    if not hasattr(agent, "clear_deferred_hook_status_messages"):
        return

    async def shown(message: Any, *_: Any, **__: Any) -> None:
        agent.clear_deferred_hook_status_messages()  # the panels that wait to be shown with it

    agent.show_assistant_message = shown
    agent._display_trailing_user_messages = _not_shown


class _Merged(RequestParams):
    """Parameters that already include their model's defaults."""


def merge_once(agent: Any) -> None:
    """Merge a run's parameters into the model's defaults once rather than in six places."""
    llm = getattr(agent, "llm", None)
    merge = getattr(llm, "_merge_request_params", None)
    if llm is None or merge is None:
        return

    def merged(default_params: RequestParams, provided_params: RequestParams) -> RequestParams:
        if isinstance(provided_params, _Merged):
            # An automatic time-out is set by the caller on a copy; with a fixed one it makes no copy.
            fixed = "streaming_timeout" in provided_params.model_fields_set
            return provided_params.model_copy() if fixed else provided_params
        params = merge(default_params, provided_params)
        return _Merged.model_construct(set(params.model_fields_set), **dict(params))

    llm._merge_request_params = merged


def _not_shown(*_: Any, **__: Any) -> None: ...


def _kept_elsewhere(summarise: Any) -> Any:
    async def auto_compact_history(ctx: Any) -> None: ...

    return auto_compact_history


# The next turn loads its own history: a summary after the end of this one would be paid for and dropped.
NO_SUMMARY_AFTER: Final = Hook(
    name="no-summary-after-a-turn",
    owner=compaction,
    attribute="auto_compact_history",
    parameters=("ctx",),
    wrap=_kept_elsewhere,
)


def _with_defaults(default_skill_paths: Any) -> Any:
    unset = Settings.model_construct()

    def found(settings: Any = None, *, cwd: Any = None, override: Any = None) -> Any:
        return default_skill_paths(unset if settings is None else settings, cwd=cwd, override=override)

    return found


# Without settings fast-agent reads the whole environment into new ones, three times for each agent, and uses
# their ``home`` alone, which is never taken from the environment.
SKILLS_WITHOUT_SETTINGS: Final = tuple(
    Hook(
        name=f"skills-without-settings-{name}",
        owner=owner,
        attribute="default_skill_paths",
        parameters=("settings", "cwd", "override"),
        wrap=_with_defaults,
    )
    for name, owner in (("registry", registry), ("paths", paths))
)
