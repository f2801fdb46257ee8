"""Writes a run's parameters in each provider's format: pure functions on a request.

``openai`` is chat completions, ``responses`` OpenAI's Responses API, ``anthropic`` the Messages API,
``other`` any other provider of fast-agent (Google, Bedrock, custom models). Parameters that a provider does
not support are not sent.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

from pallas.model import Params
from pallas.model.params import DETAILS, KEYS


def look(messages: Any, params: Params, kind: str) -> None:
    """Set how closely the model looks at the images in ``messages``."""
    detail = params.get("extra", {}).get("detail")
    if detail not in DETAILS:
        return
    for message in messages or ():
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == kind:
                inner = block.get("image_url") if kind == "image_url" else block
                if isinstance(inner, dict):
                    inner["detail"] = detail


Family = Literal["openai", "anthropic", "responses", "other"]

# Fields of fast-agent's own request parameters, which it writes in each provider's format.
_FIELDS: Final[Mapping[Family, Mapping[str, str]]] = {
    "openai": {
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_tokens",
        "stop": "stop_sequences",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    },
    "anthropic": {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_tokens": "max_tokens",
        "stop": "stop_sequences",
    },
    "responses": {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens"},
    "other": {
        "temperature": "temperature",
        "top_p": "top_p",
        "top_k": "top_k",
        "max_tokens": "max_tokens",
        "stop": "stop_sequences",
        "presence_penalty": "presence_penalty",
        "frequency_penalty": "frequency_penalty",
    },
}
# The place of each key in a finished request.
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "temperature": ("temperature",),
    "top_p": ("top_p",),
    "top_k": ("top_k",),
    "max_tokens": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "stop": ("stop", "stop_sequences"),
    "presence_penalty": ("presence_penalty",),
    "frequency_penalty": ("frequency_penalty",),
    "seed": ("seed",),
    "response_format": ("response_format",),
    "tool_choice": ("tool_choice",),
}

# Keys below ``extra`` that each kind of provider knows (AG-10).
_OPENAI_EXTRA: Final = frozenset(
    {
        "logit_bias", "logprobs", "metadata", "modalities", "moderation", "parallel_tool_calls", "prediction",
        "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
        "safety_identifier", "service_tier", "store", "top_logprobs", "user", "verbosity",
        "web_search_options",
    }
)  # fmt: skip
_RESPONSES_EXTRA: Final = frozenset(
    {
        "max_tool_calls", "metadata", "parallel_tool_calls", "prompt_cache_key", "prompt_cache_options",
        "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "top_logprobs",
        "truncation", "user",
    }
)  # fmt: skip
_ANTHROPIC_EXTRA: Final = frozenset(
    {
        "betas", "container", "context_management", "inference_geo", "metadata", "output_config",
        "service_tier", "speed", "thinking",
    }
)  # fmt: skip
_ANTHROPIC_ALONE: Final = _ANTHROPIC_EXTRA - {"metadata", "service_tier", "thinking"}
# Keys that ``extra`` may not set: the content, the transport, or parameters of their own.
_OURS: Final = (
    frozenset(KEYS)
    | {
        "model", "input", "instructions", "system", "tools", "functions", "function_call", "stream",
        "stream_options", "max_completion_tokens", "max_output_tokens", "stop_sequences", "n", "timeout",
        "extra_headers", "extra_query", "extra_body", "previous_response_id", "conversation", "background",
        "detail",
    }
)  # fmt: skip

# Keys that providers accept only together with tools.
_ABOUT_TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")

NO_TOOL: Final = "no_tools"
_NO_TOOLS: Final = "There are no tools in this turn."
_JSON_ONLY: Final = "Answer with one JSON object and with nothing before or after it."
# fast-agent's default for the Messages API, which requires a value.
_SOME_TOKENS: Final = 16_000


def fields(params: Params, family: Family, limit: int | None) -> dict[str, Any]:
    """Return the fields of fast-agent's request parameters for these; None clears a field.

    ``limit`` is how many tokens the model can write: no more are requested (AG-9).
    """
    found: dict[str, Any] = {}
    for key, field in _FIELDS[family].items():
        if key in params.values:
            found[field] = params.values[key]
    if (wanted := found.get("max_tokens")) is not None and limit is not None:
        found["max_tokens"] = min(wanted, limit)
    elif "max_tokens" in found and wanted is None and family == "anthropic":
        found["max_tokens"] = limit or _SOME_TOKENS
    schema = schema_of(params)
    if schema is not None and family in ("anthropic", "other"):
        found["structured_schema"] = schema
    if family == "other" and params.get("tool_choice") in ("auto", "none"):
        found["sampling_tool_choice"] = params.get("tool_choice")
    return found


def instruction(current: str | None, params: Params, family: Family, prompts: str = "") -> str | None:
    """Return the model's instruction: the current one, or that of this call (AG-13).

    ``prompts`` are those of the agent's project: they stay when the agent's own text is replaced.
    """
    override = params.get("systemOverride")
    after = [params.get("systemAppend")]
    kind = (params.get("response_format") or {}).get("type")
    if kind == "json_object" and family in ("anthropic", "other"):
        after.append(_JSON_ONLY)
    if override is None and not any(after):
        return current
    before = [current] if override is None else [override, prompts]
    return "\n\n".join(part for part in (*before, *after) if part)


def schema_of(params: Params) -> dict[str, Any] | None:
    """Return the JSON schema of the answer; None if it is free."""
    wanted = params.get("response_format") or {}
    if wanted.get("type") != "json_schema":
        return None
    schema = wanted["json_schema"].get("schema")
    return schema if isinstance(schema, dict) else {"type": "object"}


def edit_openai(arguments: dict[str, Any], params: Params, *, compatible: bool) -> None:
    """Edit the finished arguments of chat completions.

    ``compatible``: the endpoint is not OpenAI's own, and also gets parameters that we do not know.
    """
    for key in ("seed", "response_format"):
        if (value := params.get(key)) is not None:
            arguments[key] = value
    choice = params.get("tool_choice")
    if choice is not None and arguments.get("tools"):
        last = (arguments.get("messages") or [{}])[-1]
        arguments["tool_choice"] = "auto" if _forces(choice) and last.get("role") == "tool" else choice
    look(arguments.get("messages"), params, "image_url")
    _tell(arguments, params, _openai_extra(params, _OPENAI_EXTRA, compatible=compatible))


def edit_responses(arguments: dict[str, Any], params: Params, *, compatible: bool) -> None:
    """Edit the finished arguments of the Responses API; ``compatible`` as for chat completions."""
    text = dict(arguments.get("text") or {})
    if (wanted := params.get("response_format")) is not None:
        arguments["text"] = {**text, "format": {**wanted.get("json_schema", {}), "type": wanted["type"]}}
    elif params.cleared("response_format") and text.pop("format", None) is not None:
        arguments["text"] = text
    choice = params.get("tool_choice")
    if choice is not None and arguments.get("tools"):
        last = (arguments.get("input") or [{}])[-1]
        if _forces(choice) and str(last.get("type", "")).endswith("_call_output"):
            choice = "auto"
        named = {"type": "function", "name": named_in(choice)}
        arguments["tool_choice"] = named if isinstance(choice, dict) else choice
    look(arguments.get("input"), params, "input_image")
    _tell(arguments, params, _openai_extra(params, _RESPONSES_EXTRA, compatible=compatible))


_ANTHROPIC_CHOICE: Final = {"auto": "auto", "none": "none", "required": "any"}


def edit_anthropic(arguments: dict[str, Any], params: Params, limit: int | None) -> None:
    """Edit the finished arguments of the Messages API; ``limit`` as for ``fields``.

    The API refuses thinking together with a forced call, with sampling, and with fewer tokens than it
    takes: then the run's parameters take precedence over the model's defaults.
    """
    given = {key: value for key, value in _given(params) if key in _ANTHROPIC_EXTRA}
    if isinstance(betas := given.pop("betas", None), list):
        arguments["betas"] = [*(arguments.get("betas") or ()), *map(str, betas)]
    if isinstance(config := given.pop("output_config", None), dict):
        arguments["output_config"] = {**(arguments.get("output_config") or {}), **config}
    choice = params.get("tool_choice")
    # A schema that is requested by a tool has its own tool choice.
    if choice is not None and arguments.get("tools") and schema_of(params) is None:
        if _forces(choice):  # thinking must be on for a whole turn, or not at all
            arguments.pop("thinking", None)
            given.pop("thinking", None)
        if _forces(choice) and _answers_tools(arguments):
            choice = "auto"
        named = {"type": "tool", "name": named_in(choice)}
        arguments["tool_choice"] = named if isinstance(choice, dict) else {"type": _ANTHROPIC_CHOICE[choice]}
    if (most := fields(params, "anthropic", limit).get("max_tokens")) is not None:
        arguments["max_tokens"] = most
    needed = arguments.get("max_tokens")
    _tell(arguments, params, given)
    if params.cleared("max_tokens"):  # the API requires it
        arguments["max_tokens"] = needed or _SOME_TOKENS
    if "thinking" not in given and _leaves_no_thinking(arguments):
        arguments.pop("thinking", None)


def _leaves_no_thinking(arguments: Mapping[str, Any]) -> bool:
    thinking, sampling = arguments.get("thinking") or {}, arguments.get("extra_body") or {}
    if thinking.get("type") not in ("enabled", "adaptive"):
        return False
    return (
        (thinking.get("budget_tokens") or 0) >= (arguments.get("max_tokens") or _SOME_TOKENS)
        or sampling.get("temperature", 1) != 1
        or sampling.get("top_p", 1) < 0.95
        or "top_k" in sampling
    )


def named_in(choice: Any) -> str:
    """Return the tool that a choice names; empty if it names none."""
    return str(choice["function"]["name"]) if isinstance(choice, dict) else ""


def without(arguments: dict[str, Any], hidden: Callable[[str], bool]) -> None:
    """Remove the provider's own tools (a web search) from a request if they are ``hidden`` by their name.

    Does not check the agent's tools: the request has only those that are shown.
    """
    tools = arguments.pop("tools", None) or []
    if shown := [tool for tool in tools if not _is_own(tool) or not hidden(_name(tool))]:
        arguments["tools"] = shown


def drop_empty_tools(arguments: dict[str, Any]) -> None:
    """Without tools, remove every key about tools: vLLM and others refuse ``tools: []`` (AG-31)."""
    beside = arguments.get("extra_body") or {}
    if arguments.get("tools") or beside.get("tools"):
        return
    for key in _ABOUT_TOOLS:
        arguments.pop(key, None)
        beside.pop(key, None)


def never_without_tools(arguments: dict[str, Any]) -> None:
    """Add a placeholder tool: the Messages API refuses a conversation that used tools if there are none."""
    if arguments.get("tools") or not any(
        block.get("type") in ("tool_use", "tool_result")
        for message in arguments.get("messages") or ()
        if isinstance(message.get("content"), list)
        for block in message["content"]
    ):
        return
    arguments["tools"] = [{"name": NO_TOOL, "description": _NO_TOOLS, "input_schema": {"type": "object"}}]
    arguments["tool_choice"] = {"type": "none"}


def _is_own(tool: Any) -> bool:
    return isinstance(tool, Mapping) and tool.get("type", "custom") not in ("function", "custom")


def _name(tool: Mapping[str, Any]) -> str:
    return str(tool.get("name") or tool.get("type"))


def _forces(choice: Any) -> bool:
    """Return whether a choice forces the model to call a tool: allowed once a turn, or it would never end."""
    return choice == "required" or isinstance(choice, dict)


def _answers_tools(arguments: Mapping[str, Any]) -> bool:
    content = (arguments.get("messages") or [{}])[-1].get("content")
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def _given(params: Params) -> Iterator[tuple[str, Any]]:
    """Yield the entries of ``extra`` that may be sent to a provider."""
    for key, value in params.get("extra", {}).items():
        if value is not None and key not in _OURS:
            yield key, value


def _openai_extra(params: Params, known: frozenset[str], *, compatible: bool) -> dict[str, Any]:
    taken = {
        key: value
        for key, value in _given(params)
        if key in known or (compatible and key not in _ANTHROPIC_ALONE)
    }
    if not taken.get("store"):  # OpenAI allows it only with ``store``; without, it is meant for Anthropic
        taken.pop("metadata", None)
    if compatible and (top_k := params.get("extra", {}).get("top_k")) is not None:
        taken["top_k"] = top_k  # vLLM's key; the parameter of that name is Anthropic's
    return taken


def _tell(arguments: dict[str, Any], params: Params, given: Mapping[str, Any]) -> None:
    """Add the keys that the client library has no names for; remove those that are cleared."""
    beside = {**(arguments.get("extra_body") or {}), **given}
    for key, places in _PLACES.items():
        for place in places if params.cleared(key) else ():
            arguments.pop(place, None)
            beside.pop(place, None)
    if beside or "extra_body" in arguments:
        arguments["extra_body"] = beside
