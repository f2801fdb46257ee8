"""Puts a run's parameters into the requests that fast-agent makes for it.

Parameters that fast-agent has a field for go there. The others are written into each finished request by
hooks that check the current run and the model of the agent that was called: they affect no other run, no
sub-agent and no later turn. ``tests/contract/test_params_seam.py`` fails when the wrapped code changes.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from fast_agent.types import RequestParams

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import Params
from pallas.safe_text import encodable, one_line

from .google_schema import schema_hook
from .model_client_seam import GOOGLE
from .provider_params import (
    Family,
    drop_empty_tools,
    edit_anthropic,
    edit_openai,
    edit_responses,
    fields,
    instruction,
    named_in,
    never_without_tools,
    without,
)
from .tool_allowlist import Allowed, find_one
from .tool_schemas import chat_schema, fit_tools, messages_schema

log = logging.getLogger(__name__)

# Providers of chat completions with an API of their own, which refuse unknown keys.
_STRICT: Final = frozenset({"azure", "deepseek", "googleoai", "groq", "moonshot", "zai", "xai", "metaai"})
_WORKFLOW: Final = "fast_agent.agents.workflow."
_METHODS: Final[tuple[tuple[Family, str, tuple[str, ...]], ...]] = (
    ("openai", "_openai_completion_request", ("self", "message", "request_params", "tools")),
    (
        "anthropic",
        "_execute_anthropic_stream",
        ("self", "anthropic", "arguments", "model", "capture_filename", "timeout_seconds"),
    ),
    ("responses", "_build_response_args", ("self", "input_items", "request_params", "tools")),
)


@dataclass(frozen=True, slots=True)
class _RequestedParams:
    """The edit that the run in this context makes to requests to one model."""

    llm: Any
    edit: Callable[[dict[str, Any]], None]


_asked: ContextVar[_RequestedParams | None] = ContextVar("pallas_params", default=None)


class RequestedParams:
    """The parameters of one run, ready for the agent that was called.

    ``tools`` goes to ``generate`` next to the messages and ``prepare(...)``; use ``held`` around the call.
    """

    def __init__(
        self,
        agent: Any,
        params: Params,
        limit: int | None,
        prompts: str = "",
        allowed: Allowed | None = None,
        tools: Sequence[Any] = (),
    ) -> None:
        self._agent = agent
        self._llm: Any = None if _plans(agent) else getattr(agent, "llm", None)
        self._params = params
        self._limit = limit
        self._allowed = allowed
        self._family = family_of(self._llm)
        self._before: str | None = getattr(self._llm, "instruction", None)
        system_prompt = instruction(self._before, params, self._family, prompts)
        self._system_prompt = system_prompt if self._llm is not None else None
        self.tools: dict[str, Any] = {"tools": list(tools)} if allowed is not None else {}

    def prepare(self, request: RequestParams) -> RequestParams:
        """Return the run's parameters merged over those of the agent's definition and of its model (AG-8)."""
        if not self._params or self._llm is None:
            return request
        wanted = fields(self._params, self._family, self._limit)
        given = {field: value for field, value in wanted.items() if value is not None}
        merged: RequestParams = self._llm.get_request_params(request.model_copy(update=given))
        for field in wanted.keys() - given.keys():
            setattr(merged, field, None)
        if self._system_prompt != self._before:
            merged.system_prompt = (
                self._system_prompt
            )  # fast-agent uses this if the model has no value of its own
        return merged

    @contextmanager
    def held(self) -> Iterator[None]:
        """Apply the parameters to the agent until the block ends."""
        edit = self._edit() if self._params and self._llm is not None else None
        token = _asked.set(_RequestedParams(self._llm, edit) if edit is not None else None)
        try:
            with self._telling(), self._allowed.enforced(self._agent) if self._allowed else _nothing():
                yield
        finally:
            _asked.reset(token)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Replace the agent's instruction by that of this call (AG-13) until the block ends."""
        if self._system_prompt == self._before:
            yield
            return
        self._llm.instruction = self._system_prompt
        try:
            yield
        finally:
            if self._llm.instruction is self._system_prompt:  # otherwise it was replaced in the meantime
                self._llm.instruction = self._before

    def _edit(self) -> Callable[[dict[str, Any]], None]:
        compatible, params, allowed = is_compatible(self._llm), self._params, self._allowed

        def edit(arguments: dict[str, Any]) -> None:
            if self._family == "openai":
                edit_openai(arguments, params, compatible=compatible)
            elif self._family == "responses":
                edit_responses(arguments, params, compatible=compatible)
            elif self._family == "anthropic":
                edit_anthropic(arguments, params, self._limit)
            if allowed is not None:
                without(arguments, allowed.hides)

        return edit


def _plans(agent: Any) -> bool:
    """Return whether an agent's model only decides which agents answer (a router, a planner)."""
    module = type(agent).__module__
    return module.startswith(_WORKFLOW) and module != f"{_WORKFLOW}agents_as_tools_agent"


async def requested_params(
    agent: Any, params: Params, limit: int | None, prompts: str = ""
) -> RequestedParams:
    """Return the parameters for this agent.

    ``limit`` is how many tokens its model can write, ``prompts`` the part of its instruction that is its
    project's. Raises Fault (PROTOCOL) if they name unknown or ambiguous tools.
    """
    choice = params.get("tool_choice")
    listed, named = params.get("tools_allowlist"), named_in(choice)
    if (listed is None and not named) or _plans(agent) or not hasattr(agent, "list_tools"):
        return RequestedParams(agent, params, limit, prompts)
    tools = (await agent.list_tools()).tools
    allowed = None
    if listed is not None:
        allowed = Allowed(listed, [tool.name for tool in tools])
        if allowed.missing:
            log.warning("tools_allowlist: no tool is named %s", one_line(", ".join(allowed.missing), 200))
        tools = [tool for tool in tools if tool.name in allowed.names]
    if named:
        name = find_one(named, [tool.name for tool in tools], "tool_choice")
        choice = {"type": "function", "function": {"name": name}}
        params = replace(params, values={**params.values, "tool_choice": choice})
    return RequestedParams(agent, params, limit, prompts, allowed, tools)


def family_of(llm: Any) -> Family:
    """Return the family of request formats that this model uses."""
    return next((family for family, method, _ in _METHODS if hasattr(llm, method)), "other")


def is_compatible(llm: Any) -> bool:
    """Return whether the model is behind an OpenAI-compatible endpoint that is not OpenAI's (vLLM)."""
    provider = str(getattr(getattr(llm, "provider", None), "value", ""))
    if provider in _STRICT:
        return False
    if provider not in ("openai", "responses", "codexresponses"):
        return True
    base = llm._base_url() or ""
    host = urlsplit(base).hostname or ""
    return bool(base) and host != "openai.com" and not host.endswith(".openai.com")


def prepare(agent: Any) -> None:
    """Install the hooks on the class of the agent's model, once for each class. Raises Fault (CONFIG)."""
    for hook in hooks_for(type(getattr(agent, "llm", None))):
        library_hooks.install(hook)


def hooks_for(kind: type) -> tuple[Hook, ...]:
    """Return the hooks for models of this class, each on the class that defines the function."""
    wanted = [
        (f"params-{family}", method, parameters, _WRAPS[family]) for family, method, parameters in _METHODS
    ]
    wanted.append(("reasoning-text", "_handle_reasoning_delta", _REASONING, _every_reasoning))
    wanted.append(("plain-messages", "_create_openai_streaming_response", _STREAMING, _as_they_are))
    found: list[Hook] = []
    for name, method, parameters, wrap in wanted:
        # An override in a project's own class still calls this one.
        ours = (each for each in kind.__mro__ if each.__module__.startswith("fast_agent."))
        owner = next((each for each in ours if method in vars(each)), None)
        if owner is not None:
            found.append(Hook(name, owner, method, parameters, wrap))
    if hasattr(kind, GOOGLE):
        found.append(schema_hook())
    return tuple(found)


def _schema_in_function(tool: Any) -> tuple[Any, str]:
    return tool.get("function"), "parameters"


_SCHEMAS: Final[dict[Family, tuple[Callable[[Any], tuple[Any, str]], Callable[[Any], dict[str, Any]]]]] = {
    "openai": (_schema_in_function, chat_schema),
    "responses": (lambda tool: (tool, "parameters"), chat_schema),
    "anthropic": (lambda tool: (tool, "input_schema"), messages_schema),
}
"""Where a tool of a request has its schema, and the nearest one that the API takes."""


def _editing(llm: Any, arguments: dict[str, Any], family: Family) -> None:
    if tools := arguments.get("tools"):
        fit_tools(tools, *_SCHEMAS[family])
    asked = _asked.get()
    if asked is not None and asked.llm is llm:
        asked.edit(arguments)
    drop_empty_tools(arguments)
    # Text of a model or a server: a request that cannot be encoded would be retried for seconds.
    for key in ("messages", "input", "system", "instructions"):
        if key in arguments:
            arguments[key] = encodable(arguments[key])


def _openai(make: Any) -> Any:
    def make_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = make(self, *args, **kwargs)
        _editing(self, request.arguments, "openai")
        return request

    return make_request


def _anthropic(execute: Any) -> Any:
    async def execute_stream(self: Any, *, anthropic: Any, arguments: dict[str, Any], **kwargs: Any) -> Any:
        _editing(self, arguments, "anthropic")
        never_without_tools(arguments)
        try:
            return await execute(self, anthropic=anthropic, arguments=arguments, **kwargs)
        finally:  # made for this one request, and left with its connection open
            await anthropic.close()

    return execute_stream


def _responses(build: Any) -> Any:
    def build_args(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = build(self, *args, **kwargs)
        _editing(self, arguments, "responses")
        return arguments

    return build_args


_WRAPS: Final[dict[Family, Callable[[Any], Any]]] = {
    "openai": _openai,
    "anthropic": _anthropic,
    "responses": _responses,
}
_REASONING: Final = ("self", "reasoning_mode", "reasoning_text", "reasoning_active", "reasoning_segments")
# The fields that fast-agent passes on as reasoning; for a model it does not know it would drop them.
_HANDED_ON: Final = frozenset({"tags", "stream", "reasoning_content", "gpt_oss"})


def _every_reasoning(handle: Any) -> Any:
    def handle_delta(self: Any, *, reasoning_mode: str | None, **kwargs: Any) -> Any:
        mode = reasoning_mode if reasoning_mode in _HANDED_ON else "stream"
        return handle(self, reasoning_mode=mode, **kwargs)

    return handle_delta


# From this number of messages in a request on, the library's own pass over them is skipped.
_MANY: Final = 200
_STREAMING: Final = ("self", "client", "request", "capture_filename")


def _as_they_are(create: Any) -> Any:
    """Send many messages without the library's pass over each field, which takes seconds in the loop."""

    async def create_streaming_response(self: Any, client: Any, request: Any, capture_filename: Any) -> Any:
        messages = request.arguments.get("messages")
        if isinstance(messages, list) and len(messages) > _MANY and all(map(_is_plain, messages)):
            more = request.arguments.get("extra_body") or {}
            request.arguments = {
                **request.arguments,
                "messages": [],
                "extra_body": {**more, "messages": messages},
            }
        return await create(self, client, request, capture_filename)

    return create_streaming_response


def _is_plain(value: Any) -> bool:
    """Return whether JSON can hold a value unchanged."""
    if isinstance(value, dict):
        return all(type(each) is str or _is_plain(each) for each in value.values())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (str, int, float, bool)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
