"""Work that fast-agent does for a terminal or does again at every step, left out: a third of a short run.

``tests/contract/test_lean_seam.py`` fails when what stands here moves.
"""

from typing import Any, Final

from fast_agent.hooks import compaction
from fast_agent.types import RequestParams

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook


def no_panels(agent: Any) -> None:
    """Do not lay out the panels of questions and answers: nobody sees them.

    ``quiet`` only keeps them from being written.
    """
    if not hasattr(agent, "clear_deferred_hook_status_messages"):
        return

    async def shown(message: Any, *_: Any, **__: Any) -> None:
        agent.clear_deferred_hook_status_messages()  # what waits to be shown with it

    agent.show_assistant_message = shown
    agent._display_trailing_user_messages = _not_shown


class _Merged(RequestParams):
    """Parameters that hold their model's defaults already."""


def merge_once(agent: Any) -> None:
    """Merge the parameters of a run into the model's defaults once, not at each of six places."""
    llm = getattr(agent, "llm", None)
    merge = getattr(llm, "_merge_request_params", None)
    if llm is None or merge is None:
        return

    def merged(default_params: RequestParams, provided_params: RequestParams) -> RequestParams:
        if isinstance(provided_params, _Merged):
            # Whoever asked sets an automatic time-out on a copy; where there is a fixed one, it makes none.
            fixed = "streaming_timeout" in provided_params.model_fields_set
            return provided_params.model_copy() if fixed else provided_params
        params = merge(default_params, provided_params)
        return _Merged.model_construct(set(params.model_fields_set), **dict(params))

    llm._merge_request_params = merged


def _not_shown(*_: Any, **__: Any) -> None: ...


def _kept_elsewhere(summarise: Any) -> Any:
    async def auto_compact_history(ctx: Any) -> None: ...

    return auto_compact_history


# The next turn brings its own history: a summary of this one after its end would be paid for and dropped.
NO_SUMMARY_AFTER: Final = Hook(
    name="no-summary-after-a-turn",
    owner=compaction,
    attribute="auto_compact_history",
    parameters=("ctx",),
    wrap=_kept_elsewhere,
)


def install() -> None:
    """Install what is for every agent. Raises Fault (CONFIG) where its place has moved."""
    library_hooks.install(NO_SUMMARY_AFTER)
