"""Skips work that fast-agent does for a terminal or repeats at every step: a third of a short run.

``tests/contract/test_lean_seam.py`` fails when the wrapped code changes.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final, Self
from uuid import UUID

from fast_agent import paths
from fast_agent.config import Settings
from fast_agent.hooks import compaction
from fast_agent.llm.request_param_resolution import deep_merge
from fast_agent.skills import registry
from fast_agent.tools import codex_web_search
from fast_agent.types import RequestParams
from pydantic import BaseModel

from pallas.mcp_client.library_hooks import Hook
from pallas.model.ids import random_bytes


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

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, in a tenth of the time: fast-agent makes nine copies in a step."""
        if deep or self.__pydantic_extra__ or self.__pydantic_private__:
            return super().model_copy(update=update, deep=deep)
        return _params(
            type(self), {**vars(self), **(update or {})}, {*self.model_fields_set, *(update or ())}
        )


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
        if all(map(_is_simple, (default_params, provided_params))):
            return merged_params(default_params, provided_params)
        params = merge(default_params, provided_params)
        return _params(_Merged, dict(vars(params)), set(params.model_fields_set))

    llm._merge_request_params = merged


def merged_params(default: RequestParams, provided: RequestParams) -> RequestParams:
    """Return what fast-agent makes of both, without writing them as JSON types and checking those again."""
    given = provided.model_fields_set
    values = deepcopy({name: value for name, value in vars(default).items() if name not in _AS_THEY_ARE})
    own = {name: getattr(provided, name) for name in given if name not in _AS_THEY_ARE}
    deep_merge(values, deepcopy(own))
    for name in _AS_THEY_ARE:
        values[name] = getattr(provided if name in given else default, name)
    values["messages"] = []
    fields = set(values) - {"messages"}
    if "streaming_timeout" not in default.model_fields_set | given:
        fields.discard("streaming_timeout")
    return _params(_Merged, values, fields)


def _is_simple(params: RequestParams) -> bool:
    """Whether all values are of JSON's types, so that they are the same after writing and checking them."""
    return not params.__pydantic_extra__ and not any(
        isinstance(value, BaseModel) for name, value in vars(params).items() if name not in _AS_THEY_ARE
    )


def _params[P: RequestParams](kind: type[P], values: dict[str, Any], fields_set: set[str]) -> P:
    made = kind.__new__(kind)
    _set(made, "__dict__", values)
    _set(made, "__pydantic_fields_set__", fields_set)
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


_AS_THEY_ARE: Final = frozenset({"tool_execution_handler", "response_format"})
"""Parameters that hold objects."""
_set: Final = object.__setattr__


def _of_a_store(make: Any) -> Any:
    def uuid4() -> UUID:
        return UUID(bytes=random_bytes(16), version=4)

    return uuid4


# fast-agent makes an id for a web search, with a call of the kernel, each time that a history is cleared.
IDS_OF_SEARCHES: Final = Hook(
    name="ids-of-searches", owner=codex_web_search, attribute="uuid4", parameters=(), wrap=_of_a_store
)


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
